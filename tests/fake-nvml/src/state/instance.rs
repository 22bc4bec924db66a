//! MIG instances and their profiles.

use super::{Gpm, Gpu, Process};
use serde::{Deserialize, Serialize};

/// One MIG instance: a compute instance, and the GPU instance that it is on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// Profile, such as `3g.40gb`, `1g.10gb+me`, or `1c.3g.40gb` for a part of a GPU instance.
    pub profile: String,
    /// `nvmlDeviceGetName` of the instance; by default the GPU's name and the profile.
    pub name: Option<String>,
    /// UUID; by default derived from GPU and position.
    pub uuid: Option<String>,
    /// Position by which NVML finds it; by default that in this list. Destroyed instances leave positions free.
    pub position: Option<u32>,
    /// GPU instance id; instances with the same one share a GPU instance.
    pub gi: u32,
    /// Compute instance id.
    pub ci: u32,
    /// Total memory in MiB; by default the profile's.
    pub mem_total_mib: Option<u64>,
    /// Used memory in MiB; by default the memory of the processes plus 12.
    pub mem_used_mib: Option<u64>,
    /// Utilisation in %. NVML does not report it; GPM readings are derived from it.
    pub util: u32,
    /// GPM of the GPU instance, on cards that have it.
    pub gpm: Gpm,
    /// Processes of this instance; they are also listed on the GPU, with these ids.
    pub processes: Vec<Process>,
}

impl Default for Mig {
    fn default() -> Self {
        Self {
            profile: "1g.10gb".into(),
            name: None,
            uuid: None,
            position: None,
            gi: 1,
            ci: 0,
            mem_total_mib: None,
            mem_used_mib: None,
            util: 0,
            gpm: Gpm::default(),
            processes: Vec::new(),
        }
    }
}

impl Mig {
    /// Its name in NVML.
    pub fn full_name(&self, gpu: &Gpu) -> String {
        self.name.clone().unwrap_or_else(|| format!("{} MIG {}", gpu.name, self.profile))
    }

    /// Total and used memory in MiB.
    pub fn memory_mib(&self, gpu: &Gpu) -> (u64, u64) {
        let listed = || self.processes.iter().filter_map(|process| process.mem_mib).sum::<u64>();
        let total = self.mem_total_mib.unwrap_or_else(|| self.shape().memory_mib(gpu));
        (total, self.mem_used_mib.unwrap_or_else(|| listed() + 12))
    }

    /// Its profile's sizes.
    pub fn shape(&self) -> Profile {
        Profile::named(&self.profile)
    }
}

/// A parsed profile name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Compute slices of the GPU instance: the `3` of `3g.40gb`.
    pub slices: u32,
    /// Compute slices of the compute instance: the `1` of `1c.3g.40gb`, else all.
    pub compute_slices: u32,
    /// The `40` of `3g.40gb`.
    pub gigabytes: u64,
    /// Whether it includes the media engines: `+me`.
    pub media: bool,
}

impl Profile {
    /// Parses a name; an invalid one yields the smallest profile.
    pub fn named(name: &str) -> Self {
        let (name, media) = name.strip_suffix("+me").map_or((name, false), |name| (name, true));
        let part = |unit: &str| name.split('.').find_map(|part| part.strip_suffix(unit)?.parse::<u32>().ok());
        let slices = part("g").unwrap_or(1);
        Self {
            slices,
            compute_slices: part("c").unwrap_or(slices),
            gigabytes: part("gb").unwrap_or(10).into(),
            media,
        }
    }

    /// Its eighths of the GPU's memory.
    pub fn memory_slices(self, gpu: &Gpu) -> u64 {
        let total = gpu.mem_total_mib.unwrap_or(81_920);
        (self.gigabytes * 8 * 1_000 + total / 2).checked_div(total).unwrap_or(1).clamp(1, 8)
    }

    /// Its memory in MiB: an eighth of the GPU's for each slice, less what the driver reserves.
    pub fn memory_mib(self, gpu: &Gpu) -> u64 {
        (gpu.mem_total_mib.unwrap_or(81_920) * self.memory_slices(gpu) / 8).saturating_sub(512)
    }

    /// `NVML_GPU_INSTANCE_PROFILE_*`: the number that clients use.
    pub fn number(self, gpu: &Gpu) -> u32 {
        match self.slices {
            1 if self.media => 7,
            1 if self.memory_slices(gpu) > 1 => 9,
            1 => 0,
            2 => 1,
            3 => 2,
            4 => 3,
            _ => 4,
        }
    }

    /// Its id in the driver and in `nvidia-smi mig -lgip`.
    pub fn id(self, gpu: &Gpu) -> u32 {
        match self.number(gpu) {
            0 => 19,
            7 => 20,
            9 => 15,
            1 => 14,
            2 => 9,
            3 => 5,
            _ => 0,
        }
    }

    /// Number of multiprocessors of this many slices.
    pub fn multiprocessors(gpu: &Gpu, slices: u32) -> u32 {
        gpu.board.slice_multiprocessors * slices
    }

    /// Copy engines, decoders, encoders, JPEG decoders, optical-flow engines.
    pub fn engines(self, gpu: &Gpu) -> [u32; 5] {
        let whole = u32::from(self.slices >= 7);
        let media = whole.max(self.media.into());
        if gpu.board.architecture >= 9 {
            [self.slices + whole, self.slices, 0, self.slices, media]
        } else {
            let decoders = match self.slices {
                1 => media,
                2 => 1,
                3 | 4 => 2,
                _ => 5,
            };
            [self.slices, decoders, 0, media, media]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_matches_its_name() {
        let gpu = Gpu::default();
        let shape = |name| {
            let profile = Profile::named(name);
            (profile.slices, profile.compute_slices, profile.memory_mib(&gpu), profile.id(&gpu))
        };
        assert_eq!(shape("1g.10gb"), (1, 1, 9_728, 19));
        assert_eq!(shape("1g.10gb+me"), (1, 1, 9_728, 20));
        assert_eq!(shape("1g.20gb"), (1, 1, 19_968, 15));
        assert_eq!(shape("3g.40gb"), (3, 3, 40_448, 9));
        assert_eq!(shape("1c.3g.40gb"), (3, 1, 40_448, 9));
        assert_eq!(shape("7g.80gb"), (7, 7, 81_408, 0));
    }
}
