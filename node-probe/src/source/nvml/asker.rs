//! Each question to a card is asked by itself, and not again while the card is known not to answer it.

use super::word;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;

/// The questions, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    Utilization,
    MemoryV2,
    MemoryV1,
    Temperature,
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

impl Ask {
    const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// What NVML documents as unsupported while a GPU is divided into instances; some drivers say 0 instead.
const NOT_WHILE_DIVIDED: u64 = Ask::Utilization.bit()
    | Ask::Encoder.bit()
    | Ask::Decoder.bit()
    | Ask::Jpg.bit()
    | Ask::Ofa.bit()
    | Ask::Processes.bit();

/// Asks one GPU or instance.
#[derive(Debug)]
pub struct Asker {
    refused: u64,
    instance: bool,
    fault: Option<Text>,
}

impl Asker {
    /// Asks a whole GPU, or an instance, or a GPU that is divided into instances.
    pub fn new(instance: bool, divided: bool) -> Self {
        let refused = if instance || divided { NOT_WHILE_DIVIDED } else { 0 };
        Self { refused, instance, fault: None }
    }

    /// Begins another look: whether the GPU as a whole fails is found out anew.
    pub fn begin(&mut self, fault: Option<Text>) {
        self.fault = fault;
    }

    /// Why the whole GPU cannot be read, if a call of this look said so.
    pub fn fault(&self) -> Option<&Text> {
        self.fault.as_ref()
    }

    /// Whether the card is not known to refuse this.
    pub fn offers(&self, ask: Ask) -> bool {
        self.refused & ask.bit() == 0
    }

    /// Asks. A GPU that is lost is not asked further, nor a card for what it does not offer.
    pub fn ask<T>(&mut self, ask: Ask, call: impl FnOnce() -> Result<T, NvmlError>) -> Reading<T> {
        if !self.offers(ask) {
            return Reading::Unsupported;
        }
        if let Some(fault) = &self.fault {
            return Reading::Failed(fault.clone().into());
        }
        let result = call();
        match &result {
            Err(error) if self.unsupported(error) => {
                self.refused |= ask.bit();
                return Reading::Unsupported;
            }
            Err(error) => self.fault = word::fault(error),
            Ok(_) => {}
        }
        word::reading(result)
    }

    /// Asks for a number.
    pub fn number<T: Into<u64>>(
        &mut self,
        ask: Ask,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Reading<u64> {
        self.ask(ask, call).map(Into::into)
    }

    /// Of what belongs to the board, NVML says "invalid argument" for an instance on some drivers.
    fn unsupported(&self, error: &NvmlError) -> bool {
        word::unsupported(error) || self.instance && matches!(error, NvmlError::InvalidArg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_does_not_offer_is_asked_once() {
        let mut asker = Asker::new(false, false);
        let first = asker.ask(Ask::Fan, || Err::<u32, _>(NvmlError::NotSupported));
        assert_eq!((first, asker.offers(Ask::Fan)), (Reading::Unsupported, false));
        assert_eq!(asker.ask(Ask::Fan, || -> Result<u32, _> { panic!("asked again") }), Reading::Unsupported);
    }

    #[test]
    fn what_fails_is_asked_again() {
        let mut asker = Asker::new(false, false);
        let denied = asker.ask(Ask::Power, || Err::<u32, _>(NvmlError::NoPermission));
        assert_eq!(denied, Reading::Failed("insufficient permissions".into()));
        assert_eq!(asker.ask(Ask::Power, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn a_lost_gpu_is_asked_once_a_look() {
        let mut asker = Asker::new(false, false);
        let lost = Reading::Failed("GPU is lost".into());
        assert_eq!(asker.ask(Ask::Power, || Err::<u32, _>(NvmlError::GpuLost)), lost);
        assert_eq!(asker.ask(Ask::Fan, || -> Result<u32, _> { panic!("asked again") }), lost);
        assert!(asker.fault().is_some());
        asker.begin(None);
        assert_eq!(asker.ask(Ask::Fan, || Ok(1_u32)), Reading::Value(1));
    }

    #[test]
    fn no_instance_and_no_divided_gpu_has_a_utilisation() {
        for (instance, divided) in [(true, false), (false, true)] {
            let mut asker = Asker::new(instance, divided);
            assert_eq!(asker.ask(Ask::Utilization, || Ok(0_u32)), Reading::Unsupported);
            assert_eq!(asker.ask(Ask::Power, || Ok(5_u32)), Reading::Value(5));
        }
        let mut instance = Asker::new(true, false);
        assert_eq!(instance.ask(Ask::Power, || Err::<u32, _>(NvmlError::InvalidArg)), Reading::Unsupported);
    }
}
