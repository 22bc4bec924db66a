//! Usage of local file systems: `/dev/shm`, `/tmp` and the node's scratch disk.

use nodeglass_protocol::Reading;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Usual mount points of local scratch disks, in order of precedence; collected from public cluster
/// guides.
const SCRATCH: [&str; 16] = [
    "/scratch",
    "/localscratch",
    "/local_scratch",
    "/lscratch",
    "/scratch_local",
    "/scratch/local",
    "/local/scratch",
    "/local",
    "/localdisk",
    "/mnt/scratch",
    "/mnt/local",
    "/mnt/nvme",
    "/mnt/localdisk",
    "/nvme",
    "/ssd",
    "/raid",
];
/// Types of file systems on local disks.
const OF_DISKS: [&str; 8] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"];
/// Types of local file systems: `statvfs` of any other may block on a network.
const OF_MEMORY: [&str; 6] = ["tmpfs", "ramfs", "devtmpfs", "overlay", "rootfs", "squashfs"];

/// A mount from `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
    source: String,
}

/// The mounts of this process, in mount order.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads `/proc/self/mountinfo`, which never blocks on a file system.
    pub fn read(proc: &Path) -> Self {
        let text = fs::read(proc.join("self/mountinfo")).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(mountinfo: &str) -> Self {
        let mounts = mountinfo.lines().filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split_ascii_whitespace();
            Some(Mount {
                point: unescaped(left.split_ascii_whitespace().nth(4)?).into(),
                kind: right.next()?.to_owned(),
                source: right.next()?.to_owned(),
            })
        });
        Self(mounts.collect())
    }

    /// Returns the mount that contains a path; a later mount covers an earlier one at the same
    /// point.
    fn of(&self, path: &Path) -> Option<&Mount> {
        let on = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        on.max_by_key(|mount| mount.point.components().count())
    }

    /// Returns whether querying a path cannot block on a network.
    fn is_local(&self, path: &Path) -> bool {
        self.of(path).is_some_and(|mount| {
            OF_DISKS.contains(&mount.kind.as_str()) || OF_MEMORY.contains(&mount.kind.as_str())
        })
    }

    /// Returns the scratch disk: a usual mount point with a disk other than the root's.
    pub fn scratch(&self) -> Option<PathBuf> {
        let root = self.of(Path::new("/")).map(|mount| mount.source.as_str());
        SCRATCH.iter().map(PathBuf::from).find(|place| {
            self.of(place).is_some_and(|mount| {
                mount.point == *place
                    && OF_DISKS.contains(&mount.kind.as_str())
                    && Some(mount.source.as_str()) != root
            })
        })
    }
}

/// Decodes `\040` as a space.
fn unescaped(point: &str) -> String {
    let mut out = Vec::new();
    let mut rest = point.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Usage of a file system in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    /// Used.
    pub used: Reading<u64>,
    /// Size.
    pub total: Reading<u64>,
}

impl Space {
    /// Creates a value with the same reading twice.
    pub fn both(reading: Reading<u64>) -> Self {
        Self { used: reading.clone(), total: reading }
    }

    /// Queries a file system, if it is local. May hang if the file system does.
    pub fn of(path: &Path, mounts: &Mounts) -> Self {
        // A symbolic link may lead to a network file system.
        let Ok(place) = fs::canonicalize(path) else { return Self::both(Reading::Unsupported) };
        if !mounts.is_local(&place) {
            return Self::both(Reading::Unsupported);
        }
        match rustix::fs::statvfs(&place) {
            Err(error) => Self::both(Reading::Failed(error.to_string().into())),
            // A size of zero means no limit, or unknown.
            Ok(stat) if stat.f_blocks == 0 => Self::both(Reading::Unsupported),
            Ok(stat) => Self {
                used: Reading::Value(
                    stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize),
                ),
                total: Reading::Value(stat.f_blocks.saturating_mul(stat.f_frsize)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k
40 27 0:50 / /home rw - nfs4 server:/home rw
41 27 0:51 / /scratch rw,relatime shared:3 - lustre 10.0.0.1@o2ib:/scratch rw
42 27 259:3 / /local rw - xfs /dev/nvme0n1p1 rw
43 27 259:4 / /mnt/my\\040disk rw - xfs /dev/nvme1n1 rw
";

    #[test]
    fn scratch_is_a_local_disk() {
        assert_eq!(Mounts::parse(MOUNTS).scratch(), Some("/local".into()));
        let bound = "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 254:0 /x /scratch rw - ext4 /dev/vda rw\n";
        assert_eq!(Mounts::parse(bound).scratch(), None);
    }

    #[test]
    fn network_file_systems_are_not_queried() {
        let mounts = Mounts::parse(MOUNTS);
        assert!(mounts.is_local(Path::new("/tmp")) && mounts.is_local(Path::new("/dev/shm")));
        assert!(mounts.is_local(Path::new("/mnt/my disk/x")));
        assert!(!mounts.is_local(Path::new("/scratch/me")) && !mounts.is_local(Path::new("/home")));
        let covered = format!("{MOUNTS}44 27 0:60 / /tmp rw - nfs server:/tmp rw\n");
        assert!(!Mounts::parse(&covered).is_local(Path::new("/tmp/x")));
        assert!(!Mounts::default().is_local(Path::new("/tmp")));
    }

    #[test]
    fn this_machine_s_tmp_has_a_size() {
        let space = Space::of(Path::new("/tmp"), &Mounts::read(Path::new("/proc")));
        assert!(space.total.value().unwrap() >= space.used.value().unwrap());
        let none = Space::of(Path::new("/no/such/place"), &Mounts::read(Path::new("/proc")));
        assert_eq!(none.total, Reading::Unsupported);
    }

    proptest! {
        #[test]
        fn no_mount_is_too_strange(text in "(?s).{0,200}", point in "[\\\\0-9a-z/]{0,20}") {
            Mounts::parse(&text);
            Mounts::parse(&format!("1 2 3 / /{point} rw - {text}")).scratch();
        }
    }
}
