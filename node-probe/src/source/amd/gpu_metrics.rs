//! Parses amdgpu's binary attribute `gpu_metrics`: a table whose layout depends on its size and its
//! two revisions (`struct gpu_metrics_v…` of the kernel's `kgd_pp_interface.h`).
//!
//! The driver fills what a card does not report with ones. Of the revisions without documented
//! units only what needs none is used.

/// Maximum size of a table; the largest known one has 3,360 bytes.
pub const MAX_BYTES: usize = 4_096;
/// Number of XGMI links in a table.
const XGMI_LINKS: usize = 8;

/// Number of partitions in a table, and of dies of each.
const PARTITIONS: usize = 8;
const DIES: usize = 8;

/// The used values of a table, if the card reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMetrics {
    /// Hot-spot temperature in °C.
    pub hotspot_c: Option<u64>,
    /// Memory temperature in °C.
    pub mem_c: Option<u64>,
    /// Utilization in %.
    pub gfx_pct: Option<u64>,
    /// Utilization of the memory controller in %.
    pub umc_pct: Option<u64>,
    /// Power of the socket in W.
    pub power_w: Option<u64>,
    /// Energy since the driver was loaded, in units of 2⁻¹⁶ J.
    pub energy: Option<u64>,
    /// Graphics clock in MHz; the fastest if there are several.
    pub gfx_mhz: Option<u64>,
    /// Memory clock in MHz.
    pub mem_mhz: Option<u64>,
    /// Clock of the video engine in MHz.
    pub video_mhz: Option<u64>,
    /// Reason for lowered clocks.
    pub throttle: Option<Throttle>,
    /// Utilization of each partition in %; empty if the table has none.
    pub partition_pct: Vec<Option<u64>>,
    /// PCIe replays.
    pub pcie_replays: Option<u64>,
    /// Data received over each XGMI link in KB; empty if there are none.
    pub xgmi_read_kb: Vec<u64>,
    /// Data sent over each XGMI link in KB.
    pub xgmi_write_kb: Vec<u64>,
}

/// Reasons for lowered clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// The current reasons, as bits that do not depend on the card (`SMU_THROTTLER_…`).
    Status(u64),
    /// Number of firmware cycles for which each reason has applied.
    Residency {
        /// All cycles.
        cycles: u32,
        /// The processor or board asks for it.
        prochot: u32,
        /// Power.
        power: u32,
        /// Temperatures of the socket, the voltage regulators or the memory.
        thermal: [u32; 3],
    },
}

/// Offsets of the fields of one layout; 0 for a missing field.
struct Layout {
    size: usize,
    hotspot: usize,
    mem: usize,
    gfx_pct: usize,
    umc_pct: usize,
    power: usize,
    energy: usize,
    gfx_clk: usize,
    gfx_clks: usize,
    mem_clk: usize,
    video_clk: usize,
    indep_throttle: usize,
    residency: usize,
    replays: usize,
    xgmi: usize,
    /// The first partition, and the distance to the next.
    partitions: (usize, usize),
}

/// Without any field.
const EMPTY: Layout = Layout {
    size: 0,
    hotspot: 0,
    mem: 0,
    gfx_pct: 0,
    umc_pct: 0,
    power: 0,
    energy: 0,
    gfx_clk: 0,
    gfx_clks: 0,
    mem_clk: 0,
    video_clk: 0,
    indep_throttle: 0,
    residency: 0,
    replays: 0,
    xgmi: 0,
    partitions: (0, 0),
};

/// Layouts 1.1 to 1.3, of discrete GPUs, are extensions of each other.
const DISCRETE: Layout = Layout {
    size: 96,
    hotspot: 6,
    mem: 8,
    gfx_pct: 16,
    umc_pct: 18,
    power: 22,
    energy: 24,
    gfx_clk: 54,
    gfx_clks: 1,
    mem_clk: 58,
    video_clk: 60,
    ..EMPTY
};

/// Layouts from 1.4 on, of the Instinct MI300 series, begin alike.
const INSTINCT: Layout =
    Layout { hotspot: 4, mem: 6, power: 10, gfx_pct: 12, umc_pct: 14, gfx_clks: 8, ..EMPTY };

/// Layouts 2.1 to 3.0, of processors with a GPU. Units of temperatures, power and utilization differ
/// between processors, so that they are left to other attributes.
const APU: Layout =
    Layout { gfx_clk: 76, gfx_clks: 1, mem_clk: 80, video_clk: 84, indep_throttle: 120, ..EMPTY };

fn layout(format: u8, content: u8) -> Option<Layout> {
    Some(match (format, content) {
        // The first layout has its clocks and its throttle status elsewhere, and no energy.
        (1, 0) => Layout {
            size: 80,
            hotspot: 18,
            mem: 20,
            gfx_pct: 28,
            umc_pct: 30,
            power: 34,
            gfx_clks: 1,
            ..EMPTY
        },
        (1, 1) => DISCRETE,
        (1, 2) => Layout { size: 104, ..DISCRETE },
        (1, 3) => Layout { size: 120, indep_throttle: 112, ..DISCRETE },
        (1, 4) => Layout {
            size: 288,
            energy: 24,
            replays: 88,
            xgmi: 104,
            gfx_clk: 240,
            video_clk: 264,
            mem_clk: 280,
            ..INSTINCT
        },
        (1, 5) => Layout {
            size: 328,
            energy: 56,
            replays: 120,
            xgmi: 144,
            gfx_clk: 280,
            video_clk: 304,
            mem_clk: 320,
            ..INSTINCT
        },
        (1, 6) => Layout {
            size: 1_664,
            energy: 16,
            residency: 32,
            replays: 104,
            xgmi: 128,
            gfx_clk: 264,
            video_clk: 288,
            mem_clk: 304,
            partitions: (312, 168),
            ..INSTINCT
        },
        (1, 7 | 8) => Layout {
            size: if content == 7 { 2_208 } else { 3_360 },
            energy: 24,
            residency: 40,
            replays: 112,
            xgmi: 136,
            gfx_clk: 296,
            video_clk: 320,
            mem_clk: 336,
            partitions: (344, if content == 7 { 232 } else { 376 }),
            ..INSTINCT
        },
        (2, 1) => Layout { size: 120, indep_throttle: 0, ..APU },
        (2, 2) => Layout { size: 128, ..APU },
        (2, 3) => Layout { size: 152, ..APU },
        (2, 4) => Layout { size: 168, ..APU },
        (3, 0) => Layout { size: 264, gfx_clk: 174, mem_clk: 186, video_clk: 184, indep_throttle: 0, ..APU },
        _ => return None,
    })
}

/// Returns whether a table belongs to a processor with a GPU; its format states that also for an unknown layout.
pub fn is_of_apu(table: &[u8]) -> bool {
    matches!(table, [_, _, 2 | 3, ..])
}

/// Parses a table; `None` if its layout is unknown, or its size does not match the layout.
pub fn parse(table: &[u8]) -> Option<GpuMetrics> {
    let &[low, high, format, content, ..] = table else { return None };
    let layout = layout(format, content)?;
    if usize::from(u16::from_le_bytes([low, high])) != layout.size || table.len() != layout.size {
        return None;
    }
    let percent = |offset: usize| word(table, offset).filter(|percent| *percent <= 100);
    let clocks = (0..layout.gfx_clks).filter_map(|clock| word(table, layout.gfx_clk + 2 * clock));
    Some(GpuMetrics {
        hotspot_c: word(table, layout.hotspot),
        mem_c: word(table, layout.mem),
        gfx_pct: percent(layout.gfx_pct),
        umc_pct: percent(layout.umc_pct),
        power_w: word(table, layout.power),
        // Cards without a counter report 0.
        energy: long(table, layout.energy).filter(|energy| *energy != 0),
        gfx_mhz: if layout.gfx_clk == 0 { None } else { clocks.max() },
        mem_mhz: word(table, layout.mem_clk),
        video_mhz: word(table, layout.video_clk),
        throttle: throttle(table, &layout),
        partition_pct: partitions(table, &layout),
        pcie_replays: long(table, layout.replays),
        xgmi_read_kb: links(table, layout.xgmi),
        xgmi_write_kb: match layout.xgmi {
            0 => Vec::new(),
            read => links(table, read + 8 * XGMI_LINKS),
        },
    })
}

/// Averages the dies of each partition.
fn partitions(table: &[u8], layout: &Layout) -> Vec<Option<u64>> {
    let (first, distance) = layout.partitions;
    let average = |partition: usize| {
        let dies = (0..DIES).filter_map(|die| double(table, first + partition * distance + 4 * die));
        let dies: Vec<_> = dies.filter(|percent| *percent <= 100).map(u64::from).collect();
        dies.iter().sum::<u64>().checked_div(dies.len() as u64)
    };
    if first == 0 { Vec::new() } else { (0..PARTITIONS).map(average).collect() }
}

fn throttle(table: &[u8], layout: &Layout) -> Option<Throttle> {
    if let Some(status) = long(table, layout.indep_throttle) {
        return Some(Throttle::Status(status));
    }
    let at = Some(layout.residency).filter(|offset| *offset != 0)?;
    let count = |position: usize| double(table, at + 4 * position);
    Some(Throttle::Residency {
        cycles: count(0)?,
        prochot: count(1)?,
        power: count(2)?,
        thermal: [count(3)?, count(4)?, count(5)?],
    })
}

/// Reads the links that the card has, which need not be all.
fn links(table: &[u8], offset: usize) -> Vec<u64> {
    let all = if offset == 0 { 0 } else { XGMI_LINKS };
    (0..all).filter_map(|link| long(table, offset + 8 * link)).collect()
}

/// Returns the bytes of a field; `None` if the layout lacks it or the card does not report it.
fn field<const SIZE: usize>(table: &[u8], offset: usize) -> Option<[u8; SIZE]> {
    let bytes: [u8; SIZE] = table.get(offset..offset.checked_add(SIZE)?)?.try_into().ok()?;
    (offset != 0 && bytes.iter().any(|byte| *byte != 0xff)).then_some(bytes)
}

fn word(table: &[u8], offset: usize) -> Option<u64> {
    field(table, offset).map(|bytes| u16::from_le_bytes(bytes).into())
}

fn double(table: &[u8], offset: usize) -> Option<u32> {
    field(table, offset).map(u32::from_le_bytes)
}

fn long(table: &[u8], offset: usize) -> Option<u64> {
    field(table, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table in which nothing is reported but these words.
    fn table(size: usize, format: u8, content: u8, words: &[(usize, u16)]) -> Vec<u8> {
        let mut table = vec![0xff; size];
        table[..2].copy_from_slice(&u16::try_from(size).unwrap().to_le_bytes());
        (table[2], table[3]) = (format, content);
        for (offset, word) in words {
            table[*offset..offset + 2].copy_from_slice(&word.to_le_bytes());
        }
        table
    }

    #[test]
    fn what_a_card_does_not_report_is_missing() {
        let metrics = parse(&table(120, 1, 3, &[(6, 71), (16, 97), (54, 2_100)])).unwrap();
        assert_eq!((metrics.hotspot_c, metrics.gfx_pct, metrics.gfx_mhz), (Some(71), Some(97), Some(2_100)));
        assert_eq!((metrics.mem_c, metrics.energy, metrics.throttle), (None, None, None));
    }

    #[test]
    fn throttling_is_a_status_or_residencies() {
        let mut discrete = table(120, 1, 3, &[]);
        discrete[112..].copy_from_slice(&(1_u64 << 36).to_le_bytes());
        assert_eq!(parse(&discrete).unwrap().throttle, Some(Throttle::Status(1 << 36)));
        let mut instinct = table(1_664, 1, 6, &[]);
        instinct[32..56].fill(0);
        instinct[40] = 9;
        let thermal = Throttle::Residency { cycles: 0, prochot: 0, power: 9, thermal: [0; 3] };
        assert_eq!(parse(&instinct).unwrap().throttle, Some(thermal));
    }

    #[test]
    fn each_partition_has_the_average_of_its_dies() {
        let mut instinct = table(1_664, 1, 6, &[]);
        instinct[312..316].copy_from_slice(&40_u32.to_le_bytes());
        instinct[316..320].copy_from_slice(&60_u32.to_le_bytes());
        instinct[480..484].copy_from_slice(&7_u32.to_le_bytes());
        let partitions = parse(&instinct).unwrap().partition_pct;
        assert_eq!(partitions[..3], [Some(50), Some(7), None]);
        for content in 6..=8 {
            let layout = layout(1, content).unwrap();
            let (first, distance) = layout.partitions;
            // Behind the partitions there is room for one or two numbers only.
            let end = first + PARTITIONS * distance;
            assert!(end <= layout.size && layout.size - end <= 8, "{content}");
        }
        assert!(parse(&table(288, 1, 4, &[])).unwrap().partition_pct.is_empty());
    }

    #[test]
    fn the_fastest_of_several_clocks_and_all_links_are_used() {
        let mut instinct = table(288, 1, 4, &[(240, 1_300), (242, 2_100), (280, 1_300)]);
        instinct[104..232].fill(0);
        instinct[104 + 8] = 5;
        instinct[168] = 7;
        let metrics = parse(&instinct).unwrap();
        assert_eq!((metrics.gfx_mhz, metrics.mem_mhz), (Some(2_100), Some(1_300)));
        assert_eq!(
            (metrics.xgmi_read_kb[1], metrics.xgmi_write_kb[0], metrics.xgmi_read_kb.len()),
            (5, 7, 8)
        );
    }

    #[test]
    fn a_card_may_have_some_of_the_links_only() {
        let mut instinct = table(288, 1, 4, &[]);
        instinct[104..104 + 7 * 8].fill(0);
        instinct[104 + 8] = 5;
        let metrics = parse(&instinct).unwrap();
        assert_eq!((metrics.xgmi_read_kb, metrics.xgmi_write_kb), (vec![0, 5, 0, 0, 0, 0, 0], vec![]));
    }

    #[test]
    fn the_newest_table_of_processors_has_clocks() {
        let metrics = parse(&table(264, 3, 0, &[(174, 2_700), (184, 600), (186, 2_000)])).unwrap();
        assert_eq!(
            (metrics.gfx_mhz, metrics.mem_mhz, metrics.video_mhz),
            (Some(2_700), Some(2_000), Some(600))
        );
    }

    #[test]
    fn a_truncated_or_unknown_table_is_not_used() {
        let whole = table(288, 1, 4, &[]);
        assert!(parse(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(parse(&table(289, 1, 4, &[])), None);
        // From 1.9 on the table is a list of attributes.
        assert_eq!(parse(&table(64, 1, 9, &[])), None);
        assert_eq!(parse(&table(64, 200, 200, &[])), None);
        let newer = table(300, 3, 9, &[]);
        assert_eq!((parse(&newer), is_of_apu(&newer)), (None, true));
        assert!(
            !is_of_apu(&table(64, 1, 9, &[])) && !is_of_apu(&table(64, 200, 200, &[])) && !is_of_apu(&[2])
        );
    }

    proptest! {
        #[test]
        fn arbitrary_tables_never_panic(format in 0u8..4, content in 0u8..10, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
            if let Some(layout) = layout(format, content) {
                let mut table = table(layout.size, format, content, &[]);
                let length = bytes.len().min(table.len() - 4);
                table[4..4 + length].copy_from_slice(&bytes[..length]);
                prop_assert!(parse(&table).is_some());
            }
        }
    }
}
