//! Devices that the environment of an own process names: what SLURM, and then the job, lets it see.

use super::environ::Environ;
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::MAX_JOB_DEVICES;
use std::collections::BTreeSet;

/// Highest GRES index that is accepted.
const MAX_INDEX: u32 = 1_023;
/// Number of digits in a UUID, and in its shortest accepted abbreviation.
const UUID_DIGITS: usize = 32;
const MIN_UUID_DIGITS: usize = 8;

/// Devices in the variables of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedDevices {
    /// GRES indices of the step, or of the job in its batch script.
    pub gres_indices: BTreeSet<u32>,
    /// UUIDs of GPUs or MIG instances, possibly abbreviated.
    pub uuids: BTreeSet<GpuUuid>,
}

impl NamedDevices {
    /// Parses the variables of a process of this step. A list that is not understood as a whole, and words such
    /// as `all`, name nothing.
    ///
    /// Numbers in `CUDA_VISIBLE_DEVICES`, `NVIDIA_VISIBLE_DEVICES` and `GPU_DEVICE_ORDINAL` are not used: with
    /// `ConstrainDevices` they count the devices of the job, otherwise those of the node, and in MIG mode
    /// instances. Wherever SLURM sets them, it also sets one of the variables below.
    pub fn of(environ: &Environ, step: Option<&str>) -> Self {
        // A step on another node inherits the list of the batch host; only its own list is of its node.
        let indices = match step {
            Some("batch") => "SLURM_JOB_GPUS",
            _ => "SLURM_STEP_GPUS",
        };
        let uuids = |name| environ.get(name).and_then(|list| parse(list, uuid)).unwrap_or_default();
        let cuda: BTreeSet<GpuUuid> = uuids("CUDA_VISIBLE_DEVICES");
        Self {
            gres_indices: environ.get(indices).and_then(|list| parse(list, index)).unwrap_or_default(),
            // `NVIDIA_VISIBLE_DEVICES` limits the container, `CUDA_VISIBLE_DEVICES` the program in it; the narrower one
            // counts.
            uuids: if cuda.is_empty() { uuids("NVIDIA_VISIBLE_DEVICES") } else { cuda },
        }
    }

    /// Returns whether it names no device.
    pub fn is_empty(&self) -> bool {
        self.gres_indices.is_empty() && self.uuids.is_empty()
    }
}

/// Parses a list; `None` if it is empty or too long, or if an entry is invalid or repeated.
fn parse<T: Ord>(list: &str, entry: fn(&str) -> Option<T>) -> Option<BTreeSet<T>> {
    let mut found = BTreeSet::new();
    for text in list.split(',') {
        if found.len() == MAX_JOB_DEVICES || !found.insert(entry(text.trim())?) {
            return None;
        }
    }
    Some(found)
}

fn index(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    text.parse().ok().filter(|index| *index <= MAX_INDEX)
}

/// `GPU-…`, `MIG-…`, or the form of drivers before 470, `MIG-GPU-…/1/0`.
fn uuid(text: &str) -> Option<GpuUuid> {
    let is_valid = match text.strip_prefix("MIG-GPU-") {
        Some(instance) => {
            let mut parts = instance.split('/');
            let gpu = parts.next().is_some_and(is_digits);
            gpu && parts.by_ref().take(2).filter_map(index).count() == 2 && parts.next().is_none()
        }
        None => text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).is_some_and(is_digits),
    };
    is_valid.then(|| GpuUuid::new(text))
}

/// Returns whether the text has the digits of a UUID, or the first ones.
fn is_digits(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let hyphens = text.bytes().filter(|byte| *byte == b'-').count();
    digits + hyphens == text.len() && hyphens <= 4 && (MIN_UUID_DIGITS..=UUID_DIGITS).contains(&digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GPU: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    const MIG: &str = "MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10";

    fn named(step: Option<&str>, variables: &[&str]) -> (Vec<u32>, Vec<String>) {
        let devices = NamedDevices::of(&Environ::of(variables.join("\0").into_bytes()), step);
        let uuids = devices.uuids.iter().map(ToString::to_string).collect();
        (devices.gres_indices.into_iter().collect(), uuids)
    }

    fn uuids(list: &str) -> Vec<String> {
        named(None, &[&format!("CUDA_VISIBLE_DEVICES={list}")]).1
    }

    #[test]
    fn every_form_of_a_uuid_is_understood() {
        let old = format!("MIG-{GPU}/1/0");
        for list in [GPU, MIG, &old, "GPU-8932f937", "MIG-4f2a7f0e-9c11"] {
            assert_eq!(uuids(list), [list]);
        }
        assert_eq!(uuids(&format!("{MIG}, {GPU}")), [GPU, MIG]);
    }

    #[test]
    fn a_list_that_is_not_understood_as_a_whole_names_nothing() {
        let repeated = format!("{MIG},{MIG}");
        let mixed = format!("{MIG},0");
        let no_instance = format!("MIG-{GPU}");
        let third = format!("MIG-{GPU}/1/0/0");
        let long = format!("{GPU}0");
        let lists = [
            "",
            "0",
            "0,1",
            "-1",
            "NoDevFiles",
            "all",
            "none",
            "void",
            "GPU-",
            "GPU-89",
            "GPU-x932f937",
            "MIG-",
            "MIG-GPU-8932f937/1",
            "MIG-GPU-8932f937/1/x",
            "MIG-GPU-8932f937/-1/0",
            &repeated,
            &mixed,
            &no_instance,
            &third,
            &long,
        ];
        for list in lists {
            assert_eq!(uuids(list), [""; 0], "{list:?}");
        }
        for list in ["", "0,", "0,0", "0-1", "+1", "1024", "99999999999", "gpu:0", "NoDevFiles"] {
            let variable = format!("SLURM_STEP_GPUS={list}");
            assert_eq!(named(Some("0"), &[&variable]).0, [0; 0], "{list:?}");
        }
    }

    #[test]
    fn the_list_of_the_batch_host_is_not_that_of_a_step() {
        let both = ["SLURM_JOB_GPUS=2,3", "SLURM_STEP_GPUS=0"];
        assert_eq!(named(Some("batch"), &both).0, [2, 3]);
        assert_eq!(named(Some("0"), &both).0, [0]);
        assert_eq!(named(Some("0"), &both[..1]).0, [0; 0]);
        assert_eq!(named(None, &both[..1]).0, [0; 0], "an inherited environment");
    }

    #[test]
    fn what_a_program_uses_precedes_what_its_container_may() {
        let container = format!("NVIDIA_VISIBLE_DEVICES={GPU}");
        let program = format!("CUDA_VISIBLE_DEVICES={MIG}");
        assert_eq!(named(None, &[&container, &program]).1, [MIG]);
        assert_eq!(named(None, &[&container, "CUDA_VISIBLE_DEVICES=0"]).1, [GPU]);
        assert_eq!(named(None, &["NVIDIA_VISIBLE_DEVICES=all"]).1, [""; 0], "what images set");
    }

    proptest! {
        #[test]
        fn no_list_is_too_strange(list in "([0-9a-f,/-]|GPU-|MIG-|all){0,60}", step in "batch|0|") {
            let variables = [format!("CUDA_VISIBLE_DEVICES={list}"), format!("SLURM_JOB_GPUS={list}")];
            let (indices, uuids) = named(Some(&step), &[&variables[0], &variables[1]]);
            prop_assert!(indices.len() <= MAX_JOB_DEVICES && uuids.len() <= MAX_JOB_DEVICES);
            prop_assert!(uuids.iter().all(|uuid| uuid.len() >= 12));
        }
    }
}
