//! The frames of a segment, and the names and ages of segments.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use nodeglass_history::{Excerpt, NodeExcerpt, field_names};
use nodeglass_platform::frame_file::Format;
use nodeglass_protocol::range::Summaries;
use nodeglass_protocol::{GpuUuid, NodeName};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The format of segments.
pub(super) const FORMAT: Format = Format { kind: *b"nghi", name: "history segment", version: 1 };
/// Maximum length of a frame before compression, in bytes.
const MAX_FRAME: u64 = 256 << 20;

/// The slots of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Ten seconds.
    Fine,
    /// One minute.
    Coarse,
}

/// A segment on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) kind: Kind,
    /// When it was begun, in ms since 1970.
    pub(super) wall_ms: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The slots of all nodes, as a run of the relay stored them.
#[derive(Debug, Serialize, Deserialize)]
struct Frame {
    /// Time of day minus the clock of that run, in ms.
    wall_ahead_ms: u64,
    step_ms: u64,
    from: u64,
    to: u64,
    gpu_fields: Vec<String>,
    host_fields: Vec<String>,
    nodes: Vec<NodeFrame>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NodeFrame {
    name: NodeName,
    host: Vec<Summaries>,
    gpus: Vec<(GpuUuid, Vec<Summaries>)>,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    pub(super) fn of(step_ms: u64) -> Self {
        if step_ms < 60_000 { Self::Fine } else { Self::Coarse }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Fine => "10s-",
            Self::Coarse => "60s-",
        }
    }

    /// Returns for how long a segment is continued.
    pub(super) fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Fine => 3_600,
            Self::Coarse => 86_400,
        })
    }

    /// Returns for how long it is kept.
    pub(super) fn keep(self) -> Duration {
        Duration::from_secs(match self {
            Self::Fine => 6 * 3_600,
            Self::Coarse => 7 * 86_400,
        })
    }

    pub(super) fn file_name(self, wall_ms: u64) -> String {
        format!("{}{wall_ms:015}.seg", self.prefix())
    }
}

/// The segments of a directory, oldest first within each kind.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let parsed = Kind::ALL.into_iter().find_map(|kind| {
            let wall_ms = name.to_str()?.strip_prefix(kind.prefix())?.strip_suffix(".seg")?.parse().ok()?;
            Some((kind, wall_ms))
        });
        // Not through a symbolic link.
        let (Some((kind, wall_ms)), Ok(metadata)) = (parsed, entry.metadata()) else { continue };
        if metadata.is_file() {
            found.push(Segment { kind, wall_ms, path: entry.path(), bytes: metadata.len() });
        }
    }
    found.sort_by_key(|segment| (segment.kind, segment.wall_ms));
    Ok(found)
}

/// Encodes an excerpt of a run whose clock differs by `wall_ahead_ms` from the time of day.
pub(super) fn encode(excerpt: Excerpt, wall_ahead_ms: u64) -> io::Result<Vec<u8>> {
    let names = |names: Vec<&'static str>| names.into_iter().map(str::to_owned).collect();
    let (gpu_fields, host_fields) = field_names();
    let node = |node: NodeExcerpt| NodeFrame { name: node.name, host: node.host, gpus: node.gpus };
    let frame = Frame {
        wall_ahead_ms,
        step_ms: excerpt.step_ms,
        from: excerpt.slots.start,
        to: excerpt.slots.end,
        gpu_fields: names(gpu_fields),
        host_fields: names(host_fields),
        nodes: excerpt.nodes.into_iter().map(node).collect(),
    };
    let bytes = postcard::to_stdvec(&frame).map_err(io::Error::other)?;
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&bytes)?;
    packed.finish()
}

/// Decodes a frame for a run whose clock differs by `wall_ahead_ms` from the time of day: its slots become the
/// nearest slots of this run, at most half a slot away. `None` if it is invalid.
pub(super) fn decode(payload: &[u8], wall_ahead_ms: u64) -> Option<Excerpt> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(payload).take(MAX_FRAME).read_to_end(&mut bytes).ok()?;
    let frame: Frame = postcard::from_bytes(&bytes).ok()?;
    let step_ms = frame.step_ms.max(1);
    let slot = |slot: u64| -> Option<u64> {
        let wall_ms = slot.checked_mul(step_ms)?.checked_add(frame.wall_ahead_ms)?;
        Some(wall_ms.checked_sub(wall_ahead_ms)?.checked_add(step_ms / 2)? / step_ms)
    };
    let slots = slot(frame.from)?..slot(frame.to)?;
    // Every slot moves by as much as the first one, because all are multiples of the step.
    let by = i64::try_from(i128::from(slots.start) - i128::from(frame.from)).ok()?;
    let positions = |stored: &[String], wanted: &[&str]| -> Vec<Option<usize>> {
        wanted.iter().map(|name| stored.iter().position(|stored| stored == name)).collect()
    };
    let (gpu_fields, host_fields) = field_names();
    let gpu_fields = positions(&frame.gpu_fields, &gpu_fields);
    let host_fields = positions(&frame.host_fields, &host_fields);
    let row = |mut fields: Vec<Summaries>, positions: &[Option<usize>]| -> Vec<Summaries> {
        fields.iter_mut().for_each(|field| field.shift(by));
        let mut take = |position: usize| fields.get_mut(position).map(std::mem::take).unwrap_or_default();
        positions.iter().map(|position| position.map(&mut take).unwrap_or_default()).collect()
    };
    let node = |node: NodeFrame| NodeExcerpt {
        name: node.name,
        host: row(node.host, &host_fields),
        gpus: node.gpus.into_iter().map(|(uuid, fields)| (uuid, row(fields, &gpu_fields))).collect(),
    };
    Some(Excerpt { step_ms, slots, nodes: frame.nodes.into_iter().map(node).collect() })
}
