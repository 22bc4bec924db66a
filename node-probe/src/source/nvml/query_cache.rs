//! Individual NVML queries of a GPU, and a cache of unsupported ones.

use super::error;
use super::fields::FIELD_READINGS;
use crate::source::calls::CallTracker;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;
use std::sync::Arc;

/// The queries, one bit each.
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
    PcieThroughputTx,
    PcieThroughputRx,
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
    Vgpus,
    License,
    Bar1,
    LinkReplay,
    LinkRecovery,
    LinkCrcFlit,
    LinkCrcData,
    LinkDlErrors,
    /// The first field value; see [`Query::field`].
    FieldValue,
}

impl Query {
    const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The query of the field value at this position of [`super::fields::FIELDS`].
    pub const fn field(index: usize) -> QueryBit {
        QueryBit(1 << (Self::FieldValue as usize + index))
    }
}

const _: () = assert!(
    Query::FieldValue as usize + FIELD_READINGS <= u64::BITS as usize,
    "queries and field values are bits of a u64"
);

/// A query, or the query of a field value, as a bit.
#[derive(Clone, Copy, Debug)]
pub struct QueryBit(u64);

impl From<Query> for QueryBit {
    fn from(query: Query) -> Self {
        Self(query.bit())
    }
}

/// Queries that NVML documents as unsupported in MIG mode; some drivers return 0 instead.
const UNSUPPORTED_IN_MIG_MODE: u64 = Query::Utilization.bit()
    | Query::Encoder.bit()
    | Query::Decoder.bit()
    | Query::Jpg.bit()
    | Query::Ofa.bit()
    | Query::Processes.bit();

/// Executes the queries of one GPU or instance.
#[derive(Debug)]
pub struct QueryCache {
    /// Queries that are skipped until the next inventory.
    refused: u64,
    /// Queries that succeeded at least once.
    answered: u64,
    /// Queries that succeeded before and were unsupported in the last cycle.
    doubted: u64,
    /// Whether a query became unsupported in this cycle.
    is_contradicted: bool,
    instance: bool,
    fault: Option<Text>,
    /// Reason to reopen the driver, and the number of failed minus successful queries of this
    /// cycle.
    gone: Option<Text>,
    gone_balance: i32,
    /// Tracks each query for the watchdog.
    calls: Arc<CallTracker>,
}

impl QueryCache {
    /// Creates the cache of a GPU, of an instance, or of a GPU in MIG mode.
    pub fn new(instance: bool, divided: bool, calls: Arc<CallTracker>) -> Self {
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
            calls,
        }
    }

    /// Creates a cache that repeats all queries, but remembers which succeeded before.
    pub fn renewed(&self, instance: bool, divided: bool) -> Self {
        let calls = Arc::clone(&self.calls);
        Self { answered: self.answered, doubted: self.doubted, ..Self::new(instance, divided, calls) }
    }

    /// Marks that a call outside of [`QueryCache::query`] begins, for the watchdog.
    pub fn begin_next_call(&self) {
        self.calls.begin_next_call();
    }

    /// Starts a sampling cycle: clears the fault of the GPU as a whole.
    pub fn begin(&mut self, fault: Option<Text>) {
        self.fault = fault;
        (self.gone, self.gone_balance, self.is_contradicted) = (None, 0, false);
    }

    /// Returns the fault of the GPU as a whole, if a query of this cycle found one.
    pub fn fault(&self) -> Option<&Text> {
        self.fault.as_ref()
    }

    /// Returns the reason to reopen the driver, if most queries of this cycle failed with it.
    ///
    /// If only one query fails this way, the failure is its own: reopening the driver would not
    /// help and would be repeated forever.
    pub fn gone(&self) -> Option<&Text> {
        self.gone.as_ref().filter(|_| self.gone_balance > 0)
    }

    /// Returns whether a query that succeeded before became unsupported in this cycle, which may be due to
    /// a mode change.
    pub fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// Returns whether the query is not known to be unsupported.
    pub fn offers(&self, query: impl Into<QueryBit>) -> bool {
        let QueryBit(bit) = query.into();
        self.refused & bit == 0
    }

    /// Executes a query, unless the GPU is lost or does not support it.
    pub fn query<T>(
        &mut self,
        query: impl Into<QueryBit>,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Reading<T> {
        let query = query.into();
        if !self.offers(query) {
            return Reading::Unsupported;
        }
        if let Some(fault) = &self.fault {
            return Reading::Failed(fault.clone().into());
        }
        self.calls.begin_next_call();
        let result = call();
        self.calls.begin_next_call();
        match &result {
            Ok(_) => {
                self.answered |= query.0;
                self.doubted &= !query.0;
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

    /// Records an unsupported query. It is not cached if it succeeded before, because a driver may
    /// deny it during a mode change.
    fn refuse(&mut self, QueryBit(bit): QueryBit, for_good: bool) {
        if self.answered & bit == 0 || for_good {
            self.refused |= bit;
        } else {
            self.is_contradicted |= self.doubted & bit == 0;
            self.doubted |= bit;
        }
    }

    /// Executes a query for a number.
    pub fn number<T: Into<u64>>(
        &mut self,
        query: Query,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Reading<u64> {
        self.query(query, call).map(Into::into)
    }

    /// Some drivers report an invalid argument for board-level queries of an instance.
    fn unsupported(&self, error: &NvmlError) -> bool {
        error::unsupported(error) || self.instance && matches!(error, NvmlError::InvalidArg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_queries_are_executed_once() {
        let mut queries = QueryCache::new(false, false, Arc::default());
        let first = queries.query(Query::Fan, || Err::<u32, _>(NvmlError::NotSupported));
        assert_eq!((first, queries.offers(Query::Fan)), (Reading::Unsupported, false));
        assert_eq!(
            queries.query(Query::Fan, || -> Result<u32, _> { panic!("asked again") }),
            Reading::Unsupported
        );
    }

    #[test]
    fn queries_that_succeeded_before_are_repeated_after_a_denial() {
        let mut queries = QueryCache::new(false, false, Arc::default());
        let mut call = |answer: Result<u32, NvmlError>| {
            queries.begin(None);
            (queries.query(Query::Fan, || answer), queries.is_contradicted(), queries.offers(Query::Fan))
        };
        assert_eq!(call(Ok(5)), (Reading::Value(5), false, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, true, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, false, true));
        assert_eq!(call(Ok(6)), (Reading::Value(6), false, true));
        assert_eq!(call(Err(NvmlError::NotSupported)), (Reading::Unsupported, true, true));
        // A missing library function is final.
        assert_eq!(call(Err(NvmlError::FunctionNotFound)), (Reading::Unsupported, false, false));
    }

    #[test]
    fn a_driver_is_gone_if_most_queries_report_it() {
        let mut queries = QueryCache::new(false, false, Arc::default());
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
    fn failed_queries_are_repeated() {
        let mut queries = QueryCache::new(false, false, Arc::default());
        let denied = queries.query(Query::Power, || Err::<u32, _>(NvmlError::NoPermission));
        assert_eq!(denied, Reading::Failed("insufficient permissions".into()));
        assert_eq!(queries.query(Query::Power, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn a_lost_gpu_is_queried_once_per_cycle() {
        let mut queries = QueryCache::new(false, false, Arc::default());
        let lost = Reading::Failed("GPU is lost".into());
        assert_eq!(queries.query(Query::Power, || Err::<u32, _>(NvmlError::GpuLost)), lost);
        assert_eq!(queries.query(Query::Fan, || -> Result<u32, _> { panic!("asked again") }), lost);
        assert!(queries.fault().is_some());
        queries.begin(None);
        assert_eq!(queries.query(Query::Fan, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn utilization_is_unsupported_in_mig_mode() {
        for (instance, divided) in [(true, false), (false, true)] {
            let mut queries = QueryCache::new(instance, divided, Arc::default());
            assert_eq!(queries.query(Query::Utilization, || Ok(0_u32)), Reading::Unsupported);
            assert_eq!(queries.query(Query::Power, || Ok(5_u32)), Reading::Value(5));
        }
        let mut instance = QueryCache::new(true, false, Arc::default());
        assert_eq!(
            instance.query(Query::Power, || Err::<u32, _>(NvmlError::InvalidArg)),
            Reading::Unsupported
        );
    }
}
