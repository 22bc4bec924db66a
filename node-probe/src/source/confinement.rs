//! NVIDIA GPUs that the probe's device cgroup denies: under `ConstrainDevices=yes`, `pam_slurm_adopt` and
//! `srun` confine the probe to the GPUs of one job.

use super::drm::attribute;
use crate::proc::environ::Environ;
use crate::proc::job::CgroupJob;
use nodeglass_protocol::probe::Confinement;
use nodeglass_protocol::{JobId, Text};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Maximum number of GPUs, and of instances of a GPU, that are looked at.
const MAX_DEVICES: usize = 256;

/// Returns which GPUs of the node below `root` the probe may open; `None` if it may open all of them, or if
/// that is unknown.
pub fn of_this_probe(root: &Path) -> Option<Confinement> {
    let is_admitted = |path: &Path| match access(path, Access::READ_OK) {
        Ok(()) => Some(true),
        // The device cgroup of version 1 and the BPF program of version 2 alike deny with EPERM, file
        // permissions with EACCES.
        Err(Errno::PERM) => Some(false),
        Err(_) => None,
    };
    find(root, is_admitted)
}

fn find(root: &Path, is_admitted: impl Fn(&Path) -> Option<bool>) -> Option<Confinement> {
    let minors = minors(&root.join("proc/driver/nvidia/gpus"))?;
    let mut found = Confinement::default();
    for minor in minors {
        let is_visible = is_admitted(&root.join(format!("dev/nvidia{minor}")))?;
        found.gpus.add(is_visible);
        for instance in capabilities(&root.join(format!("proc/driver/nvidia/capabilities/gpu{minor}/mig"))) {
            let device = root.join(format!("dev/nvidia-caps/nvidia-cap{instance}"));
            found.instances.add(is_visible && is_admitted(&device)?);
        }
    }
    let (job, is_adopted) = own_job(&root.join("proc/self"));
    found.is_partial().then_some(Confinement { job, is_adopted, ..found })
}

/// Minor numbers of the GPUs in `/proc/driver/nvidia/gpus`; `None` if one is not stated.
fn minors(folder: &Path) -> Option<Vec<u32>> {
    let texts = entries(folder).into_iter().map(|gpu| attribute::read_lines(&gpu.join("information")).ok());
    let texts: Vec<String> = texts.collect::<Option<_>>()?;
    // The driver does not use excluded GPUs, for anybody.
    let used = texts.iter().filter(|text| value(text, "GPU Excluded") != Some("Yes"));
    used.map(|text| value(text, "Device Minor")?.parse().ok()).collect()
}

/// Minor numbers of the capabilities of each compute instance: `gi1/ci0/access`.
fn capabilities(mig: &Path) -> Vec<u32> {
    let subfolders = |folder: &Path, prefix: &'static str| {
        let is_instance = move |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
        };
        entries(folder).into_iter().filter(is_instance)
    };
    let compute = subfolders(mig, "gi").flat_map(|instance| subfolders(&instance, "ci").collect::<Vec<_>>());
    let minor = |instance: PathBuf| {
        let text = attribute::read_lines(&instance.join("access")).ok()?;
        value(&text, "DeviceFileMinor")?.parse().ok()
    };
    compute.filter_map(minor).collect()
}

/// The value in a line `name: value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(this, _)| this.trim() == name).map(|(_, value)| value.trim())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_DEVICES);
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The job whose cgroup a process runs in, from its `/proc/PID` folder, and whether its login was adopted.
fn own_job(process: &Path) -> (Option<JobId>, bool) {
    let cgroup = attribute::read_lines(&process.join("cgroup")).unwrap_or_default();
    let CgroupJob { job, step, sluid } = CgroupJob::of(&cgroup);
    // SLURM 26.05 names the cgroup by SLUID, which does not contain the job id.
    let job: Option<JobId> = job.or_else(|| sluid.and_then(|_| Environ::read(process).job()));
    (job, step.as_ref().map(Text::as_str) == Some("extern"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::probe::Visible;

    const ADOPTED_V1: &str = "7:devices:/slurm/uid_2001/job_17/step_extern/task_0\n0::/\n";
    const STEP_V2: &str = "0::/system.slice/slurmstepd.scope/job_18/step_3/user/task_0\n";
    const ADOPTED_SLUID: &str =
        "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_extern/user/task_special\n";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A node in whose `/proc` the driver lists four GPUs, in the format of driver 550.
    fn node(cgroup: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for minor in 0..4 {
            let text = format!(
                "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 1{minor}2\nGPU UUID: \t GPU-{minor}\n\
                 Bus Location: \t 0000:0{minor}:00.0\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
            );
            write(root.path(), &format!("proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"), &text);
        }
        write(root.path(), "proc/self/cgroup", cgroup);
        root
    }

    /// What is described if the device cgroup denies these devices.
    fn described(root: &Path, denied: &[&str]) -> Option<String> {
        find(root, |path| Some(!denied.iter().any(|name| path.ends_with(name))))
            .map(|found| found.to_string())
    }

    #[test]
    fn an_adopted_probe_states_whose_gpus_it_sees() {
        let denied = ["nvidia0", "nvidia1", "nvidia3"];
        let sentence = |cgroup| described(node(cgroup).path(), &denied).unwrap();
        assert_eq!(sentence(ADOPTED_V1), "1 of 4 GPUs visible: this probe was adopted into job 17");
        assert_eq!(sentence(STEP_V2), "1 of 4 GPUs visible: this probe runs in a step of job 18");
        let other = "1 of 4 GPUs visible: the device cgroup of this probe denies the others";
        assert_eq!(sentence("0::/user.slice\n"), other);
        let node = node(ADOPTED_SLUID);
        write(node.path(), "proc/self/environ", "SLURM_JOB_ID=19\0");
        let adopted = "1 of 4 GPUs visible: this probe was adopted into job 19";
        assert_eq!(described(node.path(), &denied).as_deref(), Some(adopted));
        let found = find(node.path(), |path| Some(path.ends_with("nvidia2"))).unwrap();
        assert_eq!((found.gpus, found.job), (Visible { devices: 4, visible: 1 }, Some(JobId(19))));
    }

    #[test]
    fn nothing_is_claimed_if_all_are_visible_or_it_is_unknown() {
        let node = node(ADOPTED_V1);
        assert_eq!(described(node.path(), &[]), None);
        assert_eq!(find(node.path(), |_| None), None);
        // Without device files, as in a container that has only some of them.
        assert_eq!(of_this_probe(node.path()), None);
        let only_first = |path: &Path| path.ends_with("nvidia0").then_some(false);
        assert_eq!(find(node.path(), only_first), None);
        write(node.path(), "proc/driver/nvidia/gpus/0000:09:00.0/information", "Model: x\n");
        assert_eq!(described(node.path(), &["nvidia0"]), None, "a GPU has no minor number");
        assert_eq!(described(tempfile::tempdir().unwrap().path(), &["nvidia0"]), None, "no driver");
    }

    #[test]
    fn an_excluded_gpu_is_nobodys() {
        let node = node(ADOPTED_V1);
        let text = "Device Minor: \t 4\nGPU Excluded:\t Yes\n";
        write(node.path(), "proc/driver/nvidia/gpus/0000:09:00.0/information", text);
        assert_eq!(described(node.path(), &["nvidia4"]), None);
    }

    #[test]
    fn the_instances_of_other_jobs_are_counted_as_well() {
        let node = node(ADOPTED_V1);
        let mig = "proc/driver/nvidia/capabilities/gpu2/mig";
        for (instance, gpu_minor, compute_minor) in [(7, 327, 328), (8, 336, 337), (9, 345, 346)] {
            let access =
                |minor: u32| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
            write(node.path(), &format!("{mig}/gi{instance}/access"), &access(gpu_minor));
            write(node.path(), &format!("{mig}/gi{instance}/ci0/access"), &access(compute_minor));
        }
        let sentence = described(node.path(), &["nvidia-cap337"]);
        let expected = "2 of 3 MIG instances visible: this probe was adopted into job 17";
        assert_eq!(sentence.as_deref(), Some(expected));
        let sentence = described(node.path(), &["nvidia2"]);
        let expected = "3 of 4 GPUs and 0 of 3 MIG instances visible: this probe was adopted into job 17";
        assert_eq!(sentence.as_deref(), Some(expected));
    }
}
