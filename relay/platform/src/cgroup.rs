//! Control groups of this process, versions 1 and 2: their limits, their memory, and the time for which they throttled it.
//!
//! A site limits each user of a login node by a group above that of the session, so that all groups up to the mount point
//! count.

use std::fs;
use std::path::{Path, PathBuf};

/// Limits of version 1 from here on mean none: it is the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// The control groups that limit this process.
#[derive(Debug, Default)]
pub struct Cgroups {
    cpu: Vec<Group>,
    memory: Vec<Group>,
}

/// The folder of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    V1(PathBuf),
    V2(PathBuf),
}

/// Memory of a group with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Memory that cannot be reclaimed from the cache of files, in bytes (`memory.current` without `inactive_file`).
    pub used_bytes: u64,
    /// Its limit in bytes (`memory.max` or `memory.high`).
    pub limit_bytes: u64,
}

impl Cgroups {
    /// Finds the groups of this process; none without control groups.
    pub fn of_this_process() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    }

    /// Finds them by `/proc/PID/cgroup` and `/proc/PID/mountinfo`.
    fn find(membership: &str, mounts: &str) -> Self {
        let mut found = Self::default();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let Some(folder) = mount.folder(membership) else { continue };
            let ancestors = folder.ancestors().take_while(|folder| folder.starts_with(mount.point));
            for folder in ancestors.map(Path::to_owned) {
                let group = if mount.is_v2 { Group::V2(folder) } else { Group::V1(folder) };
                if mount.has("cpu") {
                    found.cpu.push(group.clone());
                }
                if mount.has("memory") {
                    found.memory.push(group);
                }
            }
        }
        found
    }

    /// The smallest limit of CPU time in % of a core (`cpu.max`, `cpu.cfs_quota_us`); `None` without one.
    pub fn cpu_limit_pct(&self) -> Option<u32> {
        self.cpu.iter().filter_map(Group::cpu_limit_pct).min()
    }

    /// Time for which the groups were throttled, summed over CPUs, in µs since they were created (`cpu.stat`).
    pub fn throttled_us(&self) -> u64 {
        self.cpu.iter().map(Group::throttled_us).fold(0, u64::saturating_add)
    }

    /// The memory of the group that is closest to its limit; `None` if none has a limit.
    pub fn memory(&self) -> Option<MemoryUse> {
        let uses = self.memory.iter().filter_map(Group::memory);
        uses.min_by_key(|memory| memory.limit_bytes.saturating_sub(memory.used_bytes))
    }
}

/// The folder of the group of version 2 of a process, by its `cgroup` and `mountinfo`; `None` without that version.
pub(crate) fn own_folder(membership: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().filter_map(Mount::parse).find(|mount| mount.is_v2)?.folder(membership)
}

impl Group {
    fn read(&self, name: &str) -> Option<String> {
        let (Self::V1(folder) | Self::V2(folder)) = self;
        fs::read_to_string(folder.join(name)).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.read(name)?.trim().parse().ok()
    }

    /// A number of a file with lines of a name and a number.
    fn stat(&self, name: &str, key: &str) -> Option<u64> {
        let text = self.read(name)?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }

    fn cpu_limit_pct(&self) -> Option<u32> {
        let (quota, period) = match self {
            Self::V1(_) => (self.number("cpu.cfs_quota_us")?, self.number("cpu.cfs_period_us")?),
            Self::V2(_) => {
                let text = self.read("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.parse().ok()?, period.parse().ok()?)
            }
        };
        u32::try_from(quota.saturating_mul(100).checked_div(period)?).ok()
    }

    fn throttled_us(&self) -> u64 {
        match self {
            Self::V1(_) => self.stat("cpu.stat", "throttled_time ").map(|ns| ns / 1_000),
            Self::V2(_) => self.stat("cpu.stat", "throttled_usec "),
        }
        .unwrap_or(0)
    }

    fn memory(&self) -> Option<MemoryUse> {
        let (limit, used, cache) = match self {
            Self::V1(_) => {
                (self.number("memory.limit_in_bytes"), "memory.usage_in_bytes", "total_inactive_file ")
            }
            Self::V2(_) => {
                let limits = [self.number("memory.max"), self.number("memory.high")];
                (limits.into_iter().flatten().min(), "memory.current", "inactive_file ")
            }
        };
        let limit_bytes = limit.filter(|bytes| *bytes < NO_LIMIT)?;
        let cache_bytes = self.stat("memory.stat", cache).unwrap_or(0);
        Some(MemoryUse { used_bytes: self.number(used)?.saturating_sub(cache_bytes), limit_bytes })
    }
}

/// A mounted hierarchy of groups.
struct Mount<'a> {
    /// The group that is mounted: not the root one in a container.
    root: &'a Path,
    point: &'a Path,
    is_v2: bool,
    /// Options of the hierarchy, which name the controllers of version 1.
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line of `/proc/PID/mountinfo`, if it is of a hierarchy.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, hierarchy) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (Path::new(fields.next()?), Path::new(fields.next()?));
        let mut fields = hierarchy.split(' ');
        let is_v2 = match fields.next()? {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        Some(Self { root, point, is_v2, options: fields.nth(1).unwrap_or_default() })
    }

    /// Version 2 has all controllers in one hierarchy; files that one does not offer are missing.
    fn has(&self, controller: &str) -> bool {
        self.is_v2 || self.options.split(',').any(|option| option == controller)
    }

    /// The folder of the group of the process, by `/proc/PID/cgroup`.
    fn folder(&self, membership: &str) -> Option<PathBuf> {
        let path = membership.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let is_here = match self.is_v2 {
                true => controllers.is_empty(),
                false => {
                    !controllers.is_empty() && controllers.split(',').all(|controller| self.has(controller))
                }
            };
            is_here.then_some(path)
        })?;
        let below = Path::new(path).strip_prefix(self.root).ok()?;
        Some(self.point.join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files, as the kernel would show them.
    fn group(parent: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
        folder
    }

    #[test]
    fn limits_of_version_two_count_up_to_the_slice_of_the_user() {
        let root = tempfile::tempdir().unwrap();
        let slice = group(
            root.path(),
            "user.slice/user-1001.slice",
            &[
                ("cpu.max", "80000 100000\n"),
                ("cpu.stat", "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 41000\n"),
                ("memory.max", "8589934592\n"),
                ("memory.high", "1000000\n"),
                ("memory.current", "900000\n"),
                ("memory.stat", "anon 500000\ninactive_file 300000\nactive_file 2\n"),
            ],
        );
        let own = [("cpu.max", "max 100000\n"), ("memory.max", "max\n"), ("memory.high", "max\n")];
        group(&slice, "session-3.scope", &own);
        let mounts = format!("31 23 0:27 / {} rw shared:9 - cgroup2 cgroup2 rw\n", root.path().display());
        let found = Cgroups::find("0::/user.slice/user-1001.slice/session-3.scope\n", &mounts);
        assert_eq!((found.cpu_limit_pct(), found.throttled_us()), (Some(80), 41_000));
        assert_eq!(found.memory(), Some(MemoryUse { used_bytes: 600_000, limit_bytes: 1_000_000 }));
    }

    #[test]
    fn limits_of_version_one_are_in_a_hierarchy_of_each_controller() {
        let root = tempfile::tempdir().unwrap();
        let (cpu, memory) = (root.path().join("cpu,cpuacct"), root.path().join("memory"));
        let files = [
            ("cpu.cfs_quota_us", "150000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 7\nnr_throttled 3\nthrottled_time 5000000\n"),
        ];
        group(&cpu, "alice", &files);
        fs::write(cpu.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        let unlimited =
            [("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "5\n")];
        group(&memory, "alice", &unlimited);
        let mounts = format!(
            "30 23 0:26 / {} rw - cgroup cgroup rw,cpu,cpuacct\n31 23 0:27 / {} rw - cgroup cgroup rw,memory\n\
             32 23 0:28 / /sys rw - sysfs sysfs rw\n",
            cpu.display(),
            memory.display()
        );
        let found = Cgroups::find("4:cpu,cpuacct:/alice\n3:memory:/alice\n0::/elsewhere\n", &mounts);
        assert_eq!((found.cpu_limit_pct(), found.throttled_us()), (Some(150), 5_000));
        assert_eq!(found.memory(), None);
    }

    #[test]
    fn a_group_that_is_mounted_as_root_of_a_container_is_found() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "", &[("cpu.max", "50000 100000\n")]);
        let mounts = format!("31 23 0:27 /pod {} rw - cgroup2 cgroup2 rw\n", root.path().display());
        assert_eq!(Cgroups::find("0::/pod\n", &mounts).cpu_limit_pct(), Some(50));
        assert_eq!(Cgroups::find("0::/other\n", &mounts).cpu_limit_pct(), None);
        assert_eq!(Cgroups::find("", "").memory(), None);
    }
}
