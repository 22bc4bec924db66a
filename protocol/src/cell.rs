//! A cell is one reading quantized to the resolution of the page, so that invisible changes cost
//! nothing.

use crate::Reading;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, marker::PhantomData};

/// Number of cells in a row; each kind of row uses the first few.
pub const ROW_WIDTH: usize = 48;

/// One reading, quantized for display, as a code: 0 not yet taken, 1 unsupported, 2 failed, `n + 3`
/// the value `n` in steps of its field's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cell(u32);

impl Cell {
    /// Not taken yet.
    pub const NOT_YET: Self = Self(0);
    /// The source does not offer this reading.
    pub const UNSUPPORTED: Self = Self(1);
    /// The reading failed this time.
    pub const FAILED: Self = Self(2);
    const FIRST: u32 = 3;

    /// Returns the cell of a value in steps of the field's scale; saturates.
    pub const fn steps(steps: u32) -> Self {
        Self(steps.saturating_add(Self::FIRST))
    }

    /// The value in steps, if there is one.
    pub const fn value(self) -> Option<u32> {
        self.0.checked_sub(Self::FIRST)
    }

    /// Returns the wire code.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Returns the cell of a wire code.
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// Rounds a reading to the nearest step of `field`.
    pub fn of<F: Field>(field: F, reading: &Reading<u64>) -> Self {
        match reading {
            Reading::NotYet => Self::NOT_YET,
            Reading::Unsupported => Self::UNSUPPORTED,
            Reading::Failed(_) => Self::FAILED,
            Reading::Value(value) => {
                Self::steps(u32::try_from(field.scale().steps(*value)).unwrap_or(u32::MAX))
            }
        }
    }
}

/// A column of a kind of row: its name with unit, and its scale.
pub trait Field: Copy + Eq + fmt::Debug + 'static {
    /// All fields in order of their positions.
    const ALL: &'static [Self];
    /// Position in the row; also its bit in a change mask.
    fn index(self) -> usize;
    /// Name with unit, as in JSON.
    fn name(self) -> &'static str;
    /// Mapping between steps and values.
    fn scale(self) -> Scale;
}

/// Mapping between the steps of a cell and values in its field's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All steps are equal to this unit.
    Linear(u64),
    /// Equal steps of this unit up to 32 of them, then 32 steps per doubling. Rates are displayed
    /// with at most three digits, the last of which always fluctuates; the error is at most 1.6 %.
    Logarithmic(u64),
}

impl Scale {
    /// Number of steps per doubling.
    const FINE: u64 = 32;
    /// Its binary logarithm.
    const BITS: u32 = Self::FINE.ilog2();

    /// Quantizes a value to the nearest step.
    pub const fn steps(self, value: u64) -> u64 {
        let (Self::Linear(unit) | Self::Logarithmic(unit)) = self;
        let units = value.saturating_add(unit / 2) / unit;
        if matches!(self, Self::Linear(_)) || units < Self::FINE {
            return units;
        }
        // Truncates to the highest bits and rounds half up.
        let cut = units.ilog2() - Self::BITS;
        let rounded = units.saturating_add((1 << cut) >> 1);
        let cut = rounded.ilog2() - Self::BITS;
        (cut as u64) * Self::FINE + (rounded >> cut)
    }

    /// Returns the value of a number of steps.
    pub const fn value(self, steps: u64) -> u64 {
        match self {
            Self::Linear(unit) => steps.saturating_mul(unit),
            Self::Logarithmic(unit) if steps < Self::FINE => steps.saturating_mul(unit),
            Self::Logarithmic(unit) => {
                let cut = steps / Self::FINE - 1;
                if cut + Self::BITS as u64 >= 63 {
                    return u64::MAX;
                }
                ((Self::FINE + steps % Self::FINE) << cut).saturating_mul(unit)
            }
        }
    }
}

macro_rules! fields {
    ($(#[$doc:meta])* $kind:ident { $($(#[$fdoc:meta])* $variant:ident = $name:literal / $step:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $kind { $($(#[$fdoc])* $variant,)* }

        impl Field for $kind {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            fn index(self) -> usize { self as usize }
            fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }
            fn scale(self) -> Scale { match self { $(Self::$variant => $step,)* } }
        }

        const _: () = assert!($kind::ALL.len() <= ROW_WIDTH);
    };
}

const MIB_64: u64 = 64 << 20;
const MIB_16: u64 = 16 << 20;
const MIB: u64 = 1 << 20;
const RATE: Scale = Scale::Logarithmic(MIB);

fields! {
    /// Columns of a GPU's row. The order is part of the wire format: new fields are appended.
    GpuField {
        /// Share of the last sample window with a kernel running, in %.
        Util = "util_pct" / Scale::Linear(1),
        /// Power draw in W.
        Power = "power_w" / Scale::Linear(1),
        /// Core temperature in °C.
        Temp = "temp_c" / Scale::Linear(1),
        /// Device memory in use, in steps of 64 MiB.
        MemUsed = "mem_used_bytes" / Scale::Linear(MIB_64),
        /// SM clock in steps of 15 MHz, the GPU's own granularity.
        SmClock = "sm_clock_mhz" / Scale::Linear(15),
        /// Memory clock in MHz.
        MemClock = "mem_clock_mhz" / Scale::Linear(1),
        /// Share of the window with device memory being read or written, in %.
        MemUtil = "mem_util_pct" / Scale::Linear(1),
        /// Clock-event ("throttle") reasons as NVML's bit mask.
        Throttle = "throttle_reasons" / Scale::Linear(1),
        /// Fan speed in % of its maximum.
        Fan = "fan_pct" / Scale::Linear(1),
        /// Performance state, 0 (fastest) to 15.
        PState = "p_state" / Scale::Linear(1),
        /// Uncorrected ECC errors since the driver was loaded.
        EccUncorrected = "ecc_uncorrected" / Scale::Linear(1),
        /// Corrected ECC errors since the driver was loaded.
        EccCorrected = "ecc_corrected" / Scale::Linear(1),
        /// Enforced power limit in W.
        PowerLimit = "power_limit_w" / Scale::Linear(1),
        /// Device memory reserved by driver and firmware, in steps of 64 MiB.
        MemReserved = "mem_reserved_bytes" / Scale::Linear(MIB_64),
        /// Total device memory, in steps of 64 MiB.
        MemTotal = "mem_total_bytes" / Scale::Linear(MIB_64),
        /// Share of SM-cycles with a warp resident, in % (GPM).
        SmActive = "sm_active_pct" / Scale::Linear(1),
        /// Warps resident of those that could be, in % (GPM).
        SmOccupancy = "sm_occupancy_pct" / Scale::Linear(1),
        /// Share of cycles in which the tensor cores worked, in % (GPM).
        TensorActive = "tensor_active_pct" / Scale::Linear(1),
        /// Share of the memory bandwidth used, in % (GPM).
        DramActive = "dram_active_pct" / Scale::Linear(1),
        /// Share of cycles in which FP64 units worked, in % (GPM).
        Fp64Active = "fp64_active_pct" / Scale::Linear(1),
        /// Share of cycles in which FP32 units worked, in % (GPM).
        Fp32Active = "fp32_active_pct" / Scale::Linear(1),
        /// Share of cycles in which FP16 units worked, in % (GPM).
        Fp16Active = "fp16_active_pct" / Scale::Linear(1),
        /// Share of time in which the graphics or compute engine was active, in % (GPM).
        GraphicsActive = "graphics_active_pct" / Scale::Linear(1),
        /// Received over PCIe, in steps of 1 MiB a second, coarser from 32 on (see [`Scale::Logarithmic`]).
        PcieRx = "pcie_rx_bytes_s" / RATE,
        /// Sent over PCIe.
        PcieTx = "pcie_tx_bytes_s" / RATE,
        /// Received over all NVLinks, in steps of 1 MiB a second, coarser from 32 on (see [`Scale::Logarithmic`]).
        NvlinkRx = "nvlink_rx_bytes_s" / RATE,
        /// Sent over all NVLinks.
        NvlinkTx = "nvlink_tx_bytes_s" / RATE,
        /// Temperature of the memory in °C.
        MemTemp = "mem_temp_c" / Scale::Linear(1),
        /// Instantaneous power in W; [`GpuField::Power`] is a one-second average since Ampere.
        PowerInstant = "power_instant_w" / Scale::Linear(1),
        /// Energy since the driver was loaded in Wh.
        Energy = "energy_wh" / Scale::Linear(1),
        /// Graphics clock in steps of 15 MHz.
        GraphicsClock = "graphics_clock_mhz" / Scale::Linear(15),
        /// Video clock in steps of 15 MHz.
        VideoClock = "video_clock_mhz" / Scale::Linear(15),
        /// Video encoder in %.
        Encoder = "enc_pct" / Scale::Linear(1),
        /// Video decoder in %.
        Decoder = "dec_pct" / Scale::Linear(1),
        /// JPEG decoder in %.
        Jpeg = "jpg_pct" / Scale::Linear(1),
        /// Optical-flow accelerator in %.
        Ofa = "ofa_pct" / Scale::Linear(1),
    }
}

fields! {
    /// Columns of a host's row.
    HostField {
        /// CPU utilization of all cores, in %.
        Cpu = "cpu_pct" / Scale::Linear(1),
        /// One-minute load average in hundredths.
        Load1 = "load1_centi" / Scale::Linear(1),
        /// Memory in use (total less available), in steps of 64 MiB.
        MemUsed = "mem_used_bytes" / Scale::Linear(MIB_64),
        /// Total memory, in steps of 64 MiB.
        MemTotal = "mem_total_bytes" / Scale::Linear(MIB_64),
        /// Read from local disks, in steps of 1 MiB a second, coarser from 32 on (see [`Scale::Logarithmic`]).
        DiskRead = "disk_read_bytes_s" / RATE,
        /// Written to local disks.
        DiskWrite = "disk_write_bytes_s" / RATE,
        /// Received from the network, in steps of 1 MiB a second, coarser from 32 on (see [`Scale::Logarithmic`]).
        NetRx = "net_rx_bytes_s" / RATE,
        /// Sent to the network.
        NetTx = "net_tx_bytes_s" / RATE,
        /// Received over InfiniBand, in steps of 1 MiB a second, coarser from 32 on (see [`Scale::Logarithmic`]).
        IbRx = "ib_rx_bytes_s" / RATE,
        /// Sent over InfiniBand.
        IbTx = "ib_tx_bytes_s" / RATE,
        /// PSI `some` CPU pressure over 10 s, in %.
        PsiCpu = "psi_cpu_pct" / Scale::Linear(1),
        /// PSI `some` memory pressure over 10 s, in %.
        PsiMem = "psi_mem_pct" / Scale::Linear(1),
        /// PSI `some` I/O pressure over 10 s, in %.
        PsiIo = "psi_io_pct" / Scale::Linear(1),
        /// Swap in use, in steps of 64 MiB.
        SwapUsed = "swap_used_bytes" / Scale::Linear(MIB_64),
        /// Total swap.
        SwapTotal = "swap_total_bytes" / Scale::Linear(MIB_64),
        /// Used of `/dev/shm`, in steps of 64 MiB.
        ShmUsed = "shm_used_bytes" / Scale::Linear(MIB_64),
        /// Size of `/dev/shm`.
        ShmTotal = "shm_total_bytes" / Scale::Linear(MIB_64),
        /// Used of `/tmp`, in steps of 64 MiB.
        TmpUsed = "tmp_used_bytes" / Scale::Linear(MIB_64),
        /// Size of `/tmp`.
        TmpTotal = "tmp_total_bytes" / Scale::Linear(MIB_64),
        /// Used of the scratch disk, in steps of 64 MiB.
        ScratchUsed = "scratch_used_bytes" / Scale::Linear(MIB_64),
        /// Size of the scratch disk.
        ScratchTotal = "scratch_total_bytes" / Scale::Linear(MIB_64),
        /// Errors of the InfiniBand links.
        IbErrors = "ib_errors" / Scale::Linear(1),
        /// Time since boot in steps of a minute.
        Uptime = "uptime_s" / Scale::Linear(60),
    }
}

fields! {
    /// Columns of a process's row.
    ProcessField {
        /// Device memory of this process on this GPU, in steps of 1 MiB.
        GpuMem = "gpu_mem_bytes" / Scale::Linear(MIB),
        /// Share of the SMs' time in %.
        Sm = "sm_pct" / Scale::Linear(1),
        /// CPU time in % of one core.
        Cpu = "cpu_pct" / Scale::Linear(1),
        /// Share of the memory bandwidth's time in %.
        MemBw = "mem_bw_pct" / Scale::Linear(1),
        /// Resident memory in steps of 1 MiB.
        Rss = "rss_bytes" / Scale::Linear(MIB),
        /// Share of the encoder in %.
        Encoder = "enc_pct" / Scale::Linear(1),
        /// Share of the decoder in %.
        Decoder = "dec_pct" / Scale::Linear(1),
        /// Threads.
        Threads = "threads" / Scale::Linear(1),
        /// A discriminant of [`crate::process::ProcessState`].
        State = "state" / Scale::Linear(1),
    }
}

fields! {
    /// Columns of the row of a job's resource usage on a node.
    JobField {
        /// CPU time in % of one core.
        Cpu = "cpu_pct" / Scale::Linear(1),
        /// Memory in use, in steps of 16 MiB.
        MemUsed = "mem_used_bytes" / Scale::Linear(MIB_16),
        /// Shared memory and tmpfs within it, in steps of 16 MiB.
        Shmem = "shmem_bytes" / Scale::Linear(MIB_16),
        /// CPU limit, in % of one core.
        CpuLimit = "cpu_limit_pct" / Scale::Linear(1),
        /// Memory limit, in steps of 16 MiB.
        MemLimit = "mem_limit_bytes" / Scale::Linear(MIB_16),
        /// Number of processes killed at the memory limit.
        OomKills = "oom_kills" / Scale::Linear(1),
    }
}

/// The cells of one GPU, host, process or job, indexed by field.
pub struct Row<F> {
    cells: [Cell; ROW_WIDTH],
    kind: PhantomData<F>,
}

impl<F: Field> Row<F> {
    /// Returns the cell of a field.
    pub fn get(&self, field: F) -> Cell {
        self.cells[field.index()]
    }

    /// Sets the cell of a field.
    pub fn set(&mut self, field: F, cell: Cell) {
        self.cells[field.index()] = cell;
    }

    /// Returns the value of a field in its unit, if there is one.
    pub fn value(&self, field: F) -> Option<u64> {
        self.get(field).value().map(|steps| field.scale().value(u64::from(steps)))
    }

    /// Borrows all positions, used or not.
    pub fn cells(&self) -> &[Cell; ROW_WIDTH] {
        &self.cells
    }

    /// Mutably borrows all positions, used or not.
    pub fn cells_mut(&mut self) -> &mut [Cell; ROW_WIDTH] {
        &mut self.cells
    }
}

impl<F> Clone for Row<F> {
    fn clone(&self) -> Self {
        Self { cells: self.cells, kind: PhantomData }
    }
}

impl<F> Default for Row<F> {
    fn default() -> Self {
        Self { cells: [Cell::NOT_YET; ROW_WIDTH], kind: PhantomData }
    }
}

impl<F> PartialEq for Row<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cells == other.cells
    }
}

impl<F: Field> fmt::Debug for Row<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(F::ALL.iter().map(|field| (field.name(), self.get(*field)))).finish()
    }
}

/// A cell in JSON: the value in its unit, `"unsupported"`, `"failed"`, or `null` for not yet.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HumanCell {
    Value(u64),
    Absent(HumanAbsence),
    NotYet(()),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HumanAbsence {
    Unsupported,
    Failed,
}

impl HumanCell {
    fn of<F: Field>(field: F, cell: Cell) -> Self {
        match cell.value() {
            Some(steps) => Self::Value(field.scale().value(u64::from(steps))),
            None if cell == Cell::NOT_YET => Self::NotYet(()),
            None if cell == Cell::UNSUPPORTED => Self::Absent(HumanAbsence::Unsupported),
            None => Self::Absent(HumanAbsence::Failed),
        }
    }

    fn cell<F: Field>(&self, field: F) -> Cell {
        match self {
            Self::Value(value) => Cell::of(field, &Reading::Value(*value)),
            Self::Absent(HumanAbsence::Unsupported) => Cell::UNSUPPORTED,
            Self::Absent(HumanAbsence::Failed) => Cell::FAILED,
            Self::NotYet(()) => Cell::NOT_YET,
        }
    }
}

impl<F: Field> Serialize for Row<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let known = || F::ALL.iter().filter(|field| self.get(**field) != Cell::NOT_YET);
            let mut map = serializer.serialize_map(Some(known().count()))?;
            for field in known() {
                map.serialize_entry(field.name(), &HumanCell::of(*field, self.get(*field)))?;
            }
            return map.end();
        }
        // One length byte, then the codes up to the last one that is set.
        let used = self.cells.iter().rposition(|cell| *cell != Cell::NOT_YET).map_or(0, |last| last + 1);
        let mut tuple = serializer.serialize_tuple(used + 1)?;
        tuple.serialize_element(&(used as u8))?;
        for cell in &self.cells[..used] {
            tuple.serialize_element(&cell.0)?;
        }
        tuple.end()
    }
}

impl<'de, F: Field> Deserialize<'de> for Row<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_map(RowVisitor(PhantomData))
        } else {
            deserializer.deserialize_tuple(ROW_WIDTH + 1, RowVisitor(PhantomData))
        }
    }
}

/// Some cells of a row keyed by field name, in JSON only; see [`crate::live::Readings::Plain`].
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCells<F>(pub Vec<(F, Cell)>);

impl<F: Field> NamedCells<F> {
    /// Applies the cells to a row.
    pub fn apply(&self, row: &mut Row<F>) {
        self.0.iter().for_each(|(field, cell)| row.set(*field, *cell));
    }
}

impl<F: Field> Serialize for NamedCells<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.0.iter().map(|(field, cell)| (field.name(), HumanCell::of(*field, *cell))))
    }
}

impl<'de, F: Field> Deserialize<'de> for NamedCells<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The page uses only the binary form, so this type does not support it.
        if !deserializer.is_human_readable() {
            return Err(de::Error::custom("cells by name are only available in JSON"));
        }
        let cells = std::collections::BTreeMap::<String, HumanCell>::deserialize(deserializer)?;
        let named = |field: &F| cells.get(field.name()).map(|cell| (*field, cell.cell(*field)));
        Ok(Self(F::ALL.iter().filter_map(named).collect()))
    }
}

struct RowVisitor<F>(PhantomData<F>);

impl<'de, F: Field> Visitor<'de> for RowVisitor<F> {
    type Value = Row<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cells of a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut row = Row::default();
        while let Some(name) = map.next_key::<String>()? {
            let cell: HumanCell = map.next_value()?;
            // Fields of a newer relay are ignored.
            if let Some(field) = F::ALL.iter().find(|field| field.name() == name) {
                row.set(*field, cell.cell(*field));
            }
        }
        Ok(row)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let used: u8 = seq.next_element()?.ok_or_else(|| de::Error::custom("an empty row"))?;
        if usize::from(used) > ROW_WIDTH {
            return Err(de::Error::custom("a row wider than this version knows"));
        }
        let mut row = Row::default();
        for cell in &mut row.cells[..usize::from(used)] {
            *cell = Cell(seq.next_element()?.ok_or_else(|| de::Error::custom("a short row"))?);
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_steps_are_accurate_to_a_sixtieth() {
        let scale = Scale::Logarithmic(1 << 20);
        let mut before = 0;
        for mib in
            (0..4_000u64).chain((12..40).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 7]))
        {
            let value = mib << 20;
            let steps = scale.steps(value);
            assert!(steps >= before, "{mib}");
            before = steps;
            let shown = scale.value(steps);
            assert!(shown.abs_diff(value) <= value / 63, "{value} is shown as {shown}");
            assert_eq!(scale.steps(shown), steps);
        }
        assert_eq!(scale.steps((5 << 20) + 1), 5);
        for steps in [0, 31, 32, 64, 1_000, u64::from(u32::MAX)] {
            let _ = scale.value(steps);
        }
        assert_eq!(scale.value(scale.steps(u64::MAX)), u64::MAX);
    }

    #[test]
    fn absence_is_never_zero() {
        let zero = Cell::of(GpuField::Util, &Reading::Value(0));
        for absent in [Reading::NotYet, Reading::Unsupported, Reading::Failed("x".into())] {
            assert_ne!(Cell::of(GpuField::Util, &absent), zero);
        }
        assert_eq!(zero.value(), Some(0));
    }

    #[test]
    fn values_round_to_the_nearest_step() {
        assert_eq!(Cell::of(GpuField::SmClock, &Reading::Value(1410)).value(), Some(94));
        assert_eq!(Cell::of(GpuField::SmClock, &Reading::Value(1417)).value(), Some(94));
        assert_eq!(Cell::of(GpuField::SmClock, &Reading::Value(1418)).value(), Some(95));
        assert_eq!(Cell::of(GpuField::MemUsed, &Reading::Value(u64::MAX)), Cell::steps(u32::MAX));
    }

    #[test]
    fn a_row_round_trips_in_both_forms() {
        let mut row = Row::<GpuField>::default();
        row.set(GpuField::Util, Cell::steps(97));
        row.set(GpuField::Fan, Cell::UNSUPPORTED);
        row.set(GpuField::MemUsed, Cell::FAILED);
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(json, r#"{"util_pct":97,"mem_used_bytes":"failed","fan_pct":"unsupported"}"#);
        assert_eq!(serde_json::from_str::<Row<GpuField>>(&json).unwrap(), row);
        let bytes = postcard::to_stdvec(&row).unwrap();
        assert_eq!(bytes.len(), 10);
        assert_eq!(postcard::from_bytes::<Row<GpuField>>(&bytes).unwrap(), row);
    }
}
