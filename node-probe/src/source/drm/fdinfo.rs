//! Parses `/proc/PID/fdinfo/FD` of an open GPU: the keys `drm-…` of the kernel's DRM usage statistics.

/// Maximum size of such a file; Intel's Xe driver writes about 2 KB.
pub const MAX_BYTES: usize = 16 << 10;

/// Function of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// Graphics, and compute submitted to the graphics engine.
    Graphics,
    /// Compute only.
    Compute,
    /// Video encoder.
    Encoder,
    /// Video decoder.
    Decoder,
}

impl EngineKind {
    /// Returns the kind of an engine of amdgpu, i915 or Xe; `None` for copy engines, and for Intel's
    /// video engines, which decode and encode.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "gfx" | "render" | "rcs" => Self::Graphics,
            "compute" | "ccs" => Self::Compute,
            "enc" | "enc_1" => Self::Encoder,
            "dec" => Self::Decoder,
            _ => return None,
        })
    }
}

/// Busy time of the engines of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Their function.
    pub kind: EngineKind,
    /// Time in ns (`drm-engine-…`), or cycles (`drm-cycles-…`).
    pub busy: u64,
    /// Cycles that passed meanwhile (`drm-total-cycles-…`); `None` if `busy` is a time.
    pub total: Option<u64>,
    /// Number of engines (`drm-engine-capacity-…`).
    pub capacity: u64,
}

/// One client of a driver: all that was opened together with one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// PCI address of the device (`drm-pdev`).
    pub pdev: String,
    /// Number of the client, unique per device (`drm-client-id`).
    pub id: u64,
    /// Memory on the device in bytes.
    pub device_bytes: Option<u64>,
    /// Memory of the host that the device uses, in bytes.
    pub host_bytes: Option<u64>,
    /// Its engines, each kind once.
    pub engines: Vec<Engine>,
}

/// The keys for memory in order of preference: resident memory, then its older name, then all allocated memory.
const MEMORY_KEYS: [&str; 3] = ["drm-resident-", "drm-memory-", "drm-total-"];

/// Parses the file; `None` if it does not describe a client of a DRM device with a PCI address.
/// Keys that are unknown and values that are invalid are ignored.
pub fn parse(text: &str) -> Option<Client> {
    let pairs =
        || text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim()));
    let value = |name: &str| pairs().find_map(|(key, value)| (key == name).then_some(value));
    let mut client = Client {
        pdev: value("drm-pdev")?.to_ascii_lowercase(),
        id: value("drm-client-id")?.parse().ok()?,
        ..Client::default()
    };
    for prefix in MEMORY_KEYS {
        let regions = || pairs().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, bytes(value)?)));
        let sum = |on_device: bool| {
            let parts = regions().filter(|(region, _)| is_on_device(region) == on_device);
            parts.map(|(_, bytes)| bytes).reduce(u64::saturating_add)
        };
        client.device_bytes = client.device_bytes.or_else(|| sum(true));
        client.host_bytes = client.host_bytes.or_else(|| sum(false));
    }
    for (key, value) in pairs() {
        let (name, is_time) = match (key.strip_prefix("drm-engine-"), key.strip_prefix("drm-cycles-")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => continue,
        };
        let (Some(kind), Some(busy)) = (EngineKind::of(name), first_number(value)) else { continue };
        let of_engine = |prefix: &str| {
            let number =
                pairs().find_map(|(key, value)| (key.strip_prefix(prefix) == Some(name)).then_some(value));
            number.and_then(first_number)
        };
        let total = if is_time { None } else { of_engine("drm-total-cycles-") };
        let capacity = of_engine("drm-engine-capacity-").unwrap_or(1).max(1);
        if is_time || total.is_some() {
            add(&mut client.engines, Engine { kind, busy, total, capacity });
        }
    }
    Some(client)
}

/// Adds an engine; two of a kind (`enc`, `enc_1`) count together.
fn add(engines: &mut Vec<Engine>, engine: Engine) {
    match engines.iter_mut().find(|known| known.kind == engine.kind) {
        Some(known) => known.busy = known.busy.saturating_add(engine.busy),
        None => engines.push(engine),
    }
}

/// Returns whether a region is memory of the device: `vram` (amdgpu), `vram0` (Xe), `local0` (i915).
fn is_on_device(region: &str) -> bool {
    region.starts_with("vram") || region.starts_with("local")
}

fn first_number(value: &str) -> Option<u64> {
    value.split_whitespace().next()?.parse().ok()
}

/// Parses a size: `23992 KiB`.
fn bytes(value: &str) -> Option<u64> {
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some(_) => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AMDGPU: &str = "pos:\t0\nflags:\t02100002\npasid:\t32771\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:C3:00.0\n\
        drm-client-id:\t51\ndrm-memory-vram:\t1048576 KiB\ndrm-memory-gtt: \t2048 KiB\n\
        drm-memory-cpu: \t0 KiB\ndrm-engine-gfx:\t5000 ns\ndrm-engine-enc:\t3 ns\ndrm-engine-enc_1:\t4 ns\n";

    #[test]
    fn an_amd_client_has_memory_and_engine_times() {
        let client = parse(AMDGPU).unwrap();
        assert_eq!((client.pdev.as_str(), client.id), ("0000:c3:00.0", 51));
        assert_eq!((client.device_bytes, client.host_bytes), (Some(1 << 30), Some(2 << 20)));
        let engines: Vec<_> = client.engines.iter().map(|engine| (engine.kind, engine.busy)).collect();
        assert_eq!(engines, [(EngineKind::Graphics, 5_000), (EngineKind::Encoder, 7)]);
    }

    #[test]
    fn an_xe_client_has_cycles_and_several_engines_of_a_kind() {
        let client = parse(
            "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t30 MiB\n\
             drm-resident-vram0:\t23992 KiB\ndrm-resident-gtt:\t192 KiB\ndrm-cycles-ccs:\t400\n\
             drm-total-cycles-ccs:\t1000\ndrm-engine-capacity-ccs:\t4\ndrm-cycles-bcs:\t9\n",
        );
        let client = client.unwrap();
        assert_eq!((client.device_bytes, client.host_bytes), (Some(23_992 << 10), Some(192 << 10)));
        let ccs = Engine { kind: EngineKind::Compute, busy: 400, total: Some(1_000), capacity: 4 };
        assert_eq!(client.engines, [ccs]);
    }

    #[test]
    fn junk_is_ignored_and_a_file_without_identity_is_no_client() {
        assert_eq!(parse("pos:\t0\nflags:\t02\nmnt_id:\t9\n"), None);
        assert_eq!(parse("drm-pdev:\t0000:03:00.0\ndrm-client-id:\tx\n"), None);
        let odd = "drm-pdev: 0000:03:00.0\ndrm-client-id: 1\ndrm-memory-vram: 1 EiB\ndrm-engine-gfx: -4 ns\n\
            drm-engine-gfx:\n:::\ndrm-memory-vram: 18446744073709551615 KiB\ndrm-cycles-rcs: 5\n";
        let client = parse(odd).unwrap();
        assert_eq!((client.device_bytes, client.engines.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "(?s)(drm-(pdev|client-id|memory-vram|engine-gfx|cycles-rcs|total-cycles-rcs|engine-capacity-rcs)?:?[ \t]?[0-9a-z:.]{0,22}( KiB| ns)?\n){0,20}.{0,80}") {
            let _ = parse(&text);
        }
    }
}
