//! Each question to a card is asked by itself, and not again while the card is known not to answer it.

use super::error;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;

/// The questions, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Query {
    Utilization,
    MemoryV2,
    MemoryV1,
    Temperature,
    TemperatureUnsigned,
    Power,
    PowerLimit,
    Energy,
    SmClock,
    MemClock,
    GraphicsClock,
    VideoClock,
    Throttle,
    EccUncorrected,
    EccCorrected,
    PState,
    FanCount,
    Fan,
    Encoder,
    Decoder,
    Jpg,
    Ofa,
    MemTemperature,
    PowerInstant,
    PcieTx,
    PcieRx,
    PcieThroughputTx,
    PcieThroughputRx,
    NvLinkTx,
    NvLinkRx,
    Processes,
    EccLifeCorrected,
    EccLifeUncorrected,
    RetiredCorrected,
    RetiredUncorrected,
    RetiredPending,
    Remapped,
    PcieGen,
    PcieWidth,
    PcieReplays,
    Bar1,
    LinkReplay,
    LinkRecovery,
    LinkCrcFlit,
    LinkCrcData,
    LinkDlErrors,
}

impl Query {
    const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// What NVML documents as unsupported while a GPU is divided into instances; some drivers say 0 instead.
const UNSUPPORTED_IN_MIG_MODE: u64 = Query::Utilization.bit()
    | Query::Encoder.bit()
    | Query::Decoder.bit()
    | Query::Jpg.bit()
    | Query::Ofa.bit()
    | Query::Processes.bit();

/// Asks one GPU or instance.
#[derive(Debug)]
pub struct QueryCache {
    /// What is not asked again before the next inventory.
    refused: u64,
    /// What was answered at least once.
    answered: u64,
    /// What was answered before and was called unsupported at the last look.
    doubted: u64,
    /// Whether something was answered at the last look and not at this one.
    is_contradicted: bool,
    instance: bool,
    fault: Option<Text>,
    /// Why the driver as a whole seems to be gone, and by how many answers of this look more than not.
    gone: Option<Text>,
    gone_balance: i32,
}

impl QueryCache {
    /// Asks a whole GPU, or an instance, or a GPU that is divided into instances.
    pub fn new(instance: bool, divided: bool) -> Self {
        let refused = if instance || divided { UNSUPPORTED_IN_MIG_MODE } else { 0 };
        Self {
            refused,
            answered: 0,
            doubted: 0,
            is_contradicted: false,
            instance,
            fault: None,
            gone: None,
            gone_balance: 0,
        }
    }

    /// Asks everything again, and remembers what was answered before.
    pub fn renewed(&self, instance: bool, divided: bool) -> Self {
        Self { answered: self.answered, doubted: self.doubted, ..Self::new(instance, divided) }
    }

    /// Begins another look: whether the GPU as a whole fails is found out anew.
    pub fn begin(&mut self, fault: Option<Text>) {
        self.fault = fault;
        (self.gone, self.gone_balance, self.is_contradicted) = (None, 0, false);
    }

    /// Why the whole GPU cannot be read, if a call of this look said so.
    pub fn fault(&self) -> Option<&Text> {
        self.fault.as_ref()
    }

    /// Why the driver has to be opened again, if most calls of this look said so.
    ///
    /// One call among many that says so by itself is that call's failure: opening the driver again would
    /// not help, and would be tried for ever.
    pub fn gone(&self) -> Option<&Text> {
        self.gone.as_ref().filter(|_| self.gone_balance > 0)
    }

    /// Whether something that was answered so far was called unsupported at this look: the GPU may be in
    /// another mode now.
    pub fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// Whether the card is not known to refuse this.
    pub fn offers(&self, query: Query) -> bool {
        self.refused & query.bit() == 0
    }

    /// Asks. A GPU that is lost is not asked further, nor a card for what it does not offer.
    pub fn query<T>(&mut self, query: Query, call: impl FnOnce() -> Result<T, NvmlError>) -> Reading<T> {
        if !self.offers(query) {
            return Reading::Unsupported;
        }
        if let Some(fault) = &self.fault {
            return Reading::Failed(fault.clone().into());
        }
        let result = call();
        match &result {
            Ok(_) => {
                self.answered |= query.bit();
                self.doubted &= !query.bit();
                self.gone_balance -= 1;
            }
            Err(error) if self.unsupported(error) => {
                self.refuse(query, error::missing(error));
                return Reading::Unsupported;
            }
            Err(error) if error::ends_session(error) => {
                self.gone = Some(error::of_driver(error));
                self.gone_balance += 1;
            }
            Err(error) => self.fault = error::fault(error),
        }
        error::reading(result)
    }

    /// Does not ask again what is unsupported, unless it was answered before: then the card has it, and a
    /// driver that is busy with a change of modes may deny that for a while.
    fn refuse(&mut self, query: Query, for_good: bool) {
        let bit = query.bit();
        if self.answered & bit == 0 || for_good {
            self.refused |= bit;
        } else {
            self.is_contradicted |= self.doubted & bit == 0;
            self.doubted |= bit;
        }
    }

    /// Asks for a number.
    pub fn number<T: Into<u64>>(
        &mut self,
        query: Query,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Reading<u64> {
        self.query(query, call).map(Into::into)
    }

    /// Of what belongs to the board, NVML says "invalid argument" for an instance on some drivers.
    fn unsupported(&self, error: &NvmlError) -> bool {
        error::unsupported(error) || self.instance && matches!(error, NvmlError::InvalidArg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_does_not_offer_is_asked_once() {
        let mut queries = QueryCache::new(false, false);
        let first = queries.query(Query::Fan, || Err::<u32, _>(NvmlError::NotSupported));
        assert_eq!((first, queries.offers(Query::Fan)), (Reading::Unsupported, false));
        assert_eq!(
            queries.query(Query::Fan, || -> Result<u32, _> { panic!("asked again") }),
            Reading::Unsupported
        );
    }

    #[test]
    fn what_was_answered_before_is_asked_again_and_the_first_denial_is_a_contradiction() {
        let mut queries = QueryCache::new(false, false);
        let mut call = |answer: Result<u32, NvmlError>| {
            queries.begin(None);
            (queries.query(Query::Fan, || answer), queries.is_contradicted(), queries.offers(Query::Fan))
        };
        assert_eq!(call(Ok(5)), (Reading::Value(5), false, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, true, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, false, true));
        assert_eq!(call(Ok(6)), (Reading::Value(6), false, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, true, true));
        // A library does not lose a function and find it again.
        assert_eq!(call(Err(NvmlError::FunctionNotFound)), (Reading::Unsupported, false, false));
    }

    #[test]
    fn a_driver_is_gone_when_most_calls_say_so_and_not_when_one_does() {
        let mut queries = QueryCache::new(false, false);
        let mut look = |answers: [Result<u32, NvmlError>; 3]| {
            queries.begin(None);
            for (query, answer) in [Query::Power, Query::Fan, Query::PState].into_iter().zip(answers) {
                queries.query(query, || answer);
            }
            queries.gone().is_some()
        };
        let mismatch = || Err(NvmlError::LibRmVersionMismatch);
        assert!(look([mismatch(), mismatch(), Ok(1)]));
        assert!(look([mismatch(), Err(NvmlError::Uninitialized), mismatch()]));
        assert!(!look([mismatch(), Ok(1), Ok(1)]));
        assert!(!look([Ok(1), Ok(1), Ok(1)]));
    }

    #[test]
    fn what_fails_is_asked_again() {
        let mut queries = QueryCache::new(false, false);
        let denied = queries.query(Query::Power, || Err::<u32, _>(NvmlError::NoPermission));
        assert_eq!(denied, Reading::Failed("insufficient permissions".into()));
        assert_eq!(queries.query(Query::Power, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn a_lost_gpu_is_asked_once_a_look() {
        let mut queries = QueryCache::new(false, false);
        let lost = Reading::Failed("GPU is lost".into());
        assert_eq!(queries.query(Query::Power, || Err::<u32, _>(NvmlError::GpuLost)), lost);
        assert_eq!(queries.query(Query::Fan, || -> Result<u32, _> { panic!("asked again") }), lost);
        assert!(queries.fault().is_some());
        queries.begin(None);
        assert_eq!(queries.query(Query::Fan, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn no_instance_and_no_divided_gpu_has_a_utilisation() {
        for (instance, divided) in [(true, false), (false, true)] {
            let mut queries = QueryCache::new(instance, divided);
            assert_eq!(queries.query(Query::Utilization, || Ok(0_u32)), Reading::Unsupported);
            assert_eq!(queries.query(Query::Power, || Ok(5_u32)), Reading::Value(5));
        }
        let mut instance = QueryCache::new(true, false);
        assert_eq!(
            instance.query(Query::Power, || Err::<u32, _>(NvmlError::InvalidArg)),
            Reading::Unsupported
        );
    }
}
