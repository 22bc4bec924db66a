//! Detection of containers by cgroup, environment, mounts and ancestors.

use super::stat::Stat;
use crate::proc::environ::Environ;
use nodeglass_protocol::Text;
use nodeglass_protocol::process::{Container, Runtime};
use std::{fs, path::Path};

/// Maximum number of ancestors examined.
const ANCESTORS: usize = 4;
/// Names of Apptainer's process above the processes of a container.
const STARTERS: [&[u8]; 4] = [b"starter", b"starter-suid", b"appinit", b"sinit"];
/// Prefixes of container cgroups, with their runtime.
const SCOPES: [(&str, Runtime); 5] = [
    ("docker-", Runtime::Docker),
    ("libpod-conmon-", Runtime::Podman),
    ("libpod-", Runtime::Podman),
    ("cri-containerd-", Runtime::Kubernetes),
    ("crio-", Runtime::Kubernetes),
];

/// Information from which the container of a process is determined.
pub struct ContainerHints<'a> {
    /// `/proc`.
    pub proc: &'a Path,
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// `/proc/PID/cgroup`.
    pub cgroup: &'a str,
    /// Its environment, for own processes.
    pub environ: Option<&'a Environ>,
}

impl ContainerHints<'_> {
    /// Returns the container, if the process runs in one. The innermost wins: Apptainer within
    /// Docker is Apptainer.
    pub fn container(&self) -> Option<Container> {
        self.by_environment()
            .or_else(|| self.by_mounts())
            .or_else(|| in_cgroup(self.cgroup))
            .or_else(|| self.by_ancestors())
            .or_else(|| self.by_namespaces())
    }

    fn by_environment(&self) -> Option<Container> {
        let environ = self.environ?;
        let image =
            ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"].iter().find_map(|name| environ.get(name));
        let name = ["APPTAINER_NAME", "SINGULARITY_NAME"].iter().find_map(|name| environ.get(name));
        let name = image.map(last_part).filter(|part| !part.is_empty()).or(name)?;
        Some(Container { runtime: Runtime::Apptainer, name: Some(name.into()) })
    }

    /// Enroot mounts a folder of its own at `/`; its variables alone do not prove a container, because they are
    /// exported on hosts too.
    fn by_mounts(&self) -> Option<Container> {
        let enroot = self.environ?.iter().any(|(name, _)| name.starts_with(b"ENROOT_"));
        let mounts = fs::read(self.proc.join(self.pid.to_string()).join("mountinfo")).ok()?;
        let name = enroot_root(&String::from_utf8_lossy(&mounts));
        let elsewhere = || self.other_namespace("mnt");
        (name.is_some() || (enroot && elsewhere())).then_some(Container { runtime: Runtime::Enroot, name })
    }

    fn by_ancestors(&self) -> Option<Container> {
        let mut pid = self.parent;
        for _ in 0..ANCESTORS {
            let stat = Stat::of(self.proc, pid).filter(|_| pid > 1)?;
            if STARTERS.contains(&stat.comm.as_slice()) {
                return Some(Container { runtime: Runtime::Apptainer, name: None });
            }
            pid = stat.parent;
        }
        None
    }

    fn by_namespaces(&self) -> Option<Container> {
        let other = self.other_namespace("mnt") && self.other_namespace("pid");
        other.then_some(Container { runtime: Runtime::Other, name: None })
    }

    /// Returns whether a namespace is known to differ from the probe's.
    fn other_namespace(&self, kind: &str) -> bool {
        let of = |process: &str| fs::read_link(self.proc.join(process).join("ns").join(kind)).ok();
        of(&self.pid.to_string()).zip(of("self")).is_some_and(|(its, ours)| its != ours)
    }
}

fn last_part(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Matches `docker-<64 hex digits>.scope`, `/docker/<hex>`, `kubepods…/<hex>` and similar cgroups.
fn in_cgroup(cgroup: &str) -> Option<Container> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(|path| {
        let parts: Vec<&str> = path.split('/').collect();
        parts.iter().enumerate().rev().find_map(|(at, part)| {
            let part = part.strip_suffix(".scope").unwrap_or(part);
            let scope =
                SCOPES.iter().find_map(|(prefix, runtime)| Some((*runtime, part.strip_prefix(prefix)?)));
            let (runtime, id) = scope.unwrap_or_else(|| (by_folder(&parts[..at]), part));
            let id = id.get(..64).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            Some(Container { runtime, name: Some(id[..12].into()) })
        })
    })
}

/// Returns the runtime of a cgroup whose folder is only an id.
fn by_folder(above: &[&str]) -> Runtime {
    let within = |name: &str| above.iter().any(|part| part.starts_with(name));
    match () {
        () if within("kubepods") => Runtime::Kubernetes,
        () if within("libpod") => Runtime::Podman,
        () if within("docker") => Runtime::Docker,
        () => Runtime::Other,
    }
}

/// Returns the name of an Enroot root file system: the folder mounted at `/`.
fn enroot_root(mountinfo: &str) -> Option<Text> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let name = last_part(root);
        let enroot = root.split('/').any(|part| part.starts_with("enroot")) || name.starts_with("pyxis_");
        (point == "/" && enroot && !name.is_empty()).then(|| name.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "4f2c0b9a8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f10";

    fn found(cgroup: &str) -> Option<(Runtime, Option<String>)> {
        in_cgroup(cgroup).map(|found| (found.runtime, found.name.map(|name| name.to_string())))
    }

    #[test]
    fn each_engine_s_cgroup_names_it_and_the_short_id() {
        let short = Some(ID[..12].to_owned());
        for (path, runtime) in [
            (format!("0::/system.slice/docker-{ID}.scope"), Runtime::Docker),
            (format!("4:memory:/docker/{ID}\n0::/"), Runtime::Docker),
            (
                format!(
                    "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
                ),
                Runtime::Podman,
            ),
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"
                ),
                Runtime::Kubernetes,
            ),
            (format!("0::/kubepods.slice/crio-{ID}.scope"), Runtime::Kubernetes),
            (format!("4:memory:/kubepods/burstable/pod8a/{ID}"), Runtime::Kubernetes),
            (format!("0::/machine/{ID}"), Runtime::Other),
        ] {
            assert_eq!(found(&path), Some((runtime, short.clone())), "{path}");
        }
        assert_eq!(found("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0"), None);
        assert_eq!(found("0::/system.slice/docker.service"), None);
    }

    #[test]
    fn an_enroot_root_is_a_separate_folder() {
        let pyxis = "600 550 0:98 /enroot-data/user-1000/pyxis_71.0 / rw,nosuid - tmpfs tmpfs rw\n";
        assert_eq!(enroot_root(pyxis), Some("pyxis_71.0".into()));
        let host =
            "22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n23 22 0:9 /enroot /mnt rw - xfs x rw\n";
        assert_eq!(enroot_root(host), None);
    }

    /// Creates a `/proc` with processes of given names and parents.
    fn proc(processes: &[(u32, &str, u32)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name, parent) in processes {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir_all(folder.join("ns")).unwrap();
            let stat = format!("{pid} ({name}) S {parent} {}", vec!["0"; 48].join(" "));
            fs::write(folder.join("stat"), stat).unwrap();
        }
        proc
    }

    #[test]
    fn apptainer_is_detected_by_its_starter_above_another_users_process() {
        let proc = proc(&[(5, "starter-suid", 1), (6, "bash", 5), (7, "python", 6), (8, "python", 1)]);
        let hints =
            |pid, parent| ContainerHints { proc: proc.path(), pid, parent, cgroup: "0::/", environ: None };
        assert_eq!(hints(7, 6).container(), Some(Container { runtime: Runtime::Apptainer, name: None }));
        assert_eq!(hints(8, 1).container(), None);
    }

    #[test]
    fn own_namespaces_indicate_an_unknown_container() {
        let proc = proc(&[(7, "python", 1)]);
        let namespace = |process: &str, kind: &str, to: &str| {
            fs::create_dir_all(proc.path().join(process).join("ns")).unwrap();
            std::os::unix::fs::symlink(to, proc.path().join(process).join("ns").join(kind)).unwrap();
        };
        namespace("self", "mnt", "mnt:[1]");
        namespace("self", "pid", "pid:[1]");
        namespace("7", "mnt", "mnt:[2]");
        let hints = ContainerHints { proc: proc.path(), pid: 7, parent: 1, cgroup: "0::/", environ: None };
        assert_eq!(hints.container(), None);
        namespace("7", "pid", "pid:[2]");
        assert_eq!(hints.container(), Some(Container { runtime: Runtime::Other, name: None }));
    }

    #[test]
    fn apptainer_images_are_read_from_the_environment() {
        let proc = proc(&[(7, "python", 1)]);
        fs::write(
            proc.path().join("7/environ"),
            "SINGULARITY_NAME=x\0APPTAINER_CONTAINER=/images/torch.sif\0",
        )
        .unwrap();
        let environ = Environ::read(&proc.path().join("7"));
        let hints =
            ContainerHints { proc: proc.path(), pid: 7, parent: 1, cgroup: "0::/", environ: Some(&environ) };
        let name = Some("torch.sif".into());
        assert_eq!(hints.container(), Some(Container { runtime: Runtime::Apptainer, name }));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,200}") {
            let _ = (in_cgroup(&text), in_cgroup(&format!("0::{text}")), enroot_root(&text));
        }
    }
}
