//! Environment of an own process: job, step, rank and container.

use super::MAX_BYTES;
use nodeglass_protocol::process::Rank;
use nodeglass_protocol::{JobId, Text};
use std::io;
use std::path::Path;

/// The environment at `exec`.
#[derive(Clone, Debug, Default)]
pub struct Environ(Vec<u8>);

/// Variables of one launcher for rank, local rank and number of ranks.
struct Scheme {
    global: &'static str,
    local: Option<&'static str>,
    world: Option<&'static str>,
}

/// In order of precedence: the innermost launcher first.
const SCHEMES: [Scheme; 5] = [
    Scheme { global: "RANK", local: Some("LOCAL_RANK"), world: Some("WORLD_SIZE") },
    Scheme {
        global: "OMPI_COMM_WORLD_RANK",
        local: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        world: Some("OMPI_COMM_WORLD_SIZE"),
    },
    Scheme { global: "PMI_RANK", local: Some("MPI_LOCALRANKID"), world: Some("PMI_SIZE") },
    Scheme { global: "PMIX_RANK", local: None, world: None },
    SLURM,
];
const SLURM: Scheme =
    Scheme { global: "SLURM_PROCID", local: Some("SLURM_LOCALID"), world: Some("SLURM_NTASKS") };

impl Environ {
    /// Parses the content of `/proc/PID/environ`.
    #[cfg(test)]
    pub fn of(raw: Vec<u8>) -> Self {
        Self(raw)
    }

    /// Reads the environment from a `/proc/PID` folder; empty if it cannot be read.
    pub fn read(folder: &Path) -> Self {
        Self::try_read(folder).unwrap_or_default()
    }

    /// Reads the environment from a `/proc/PID` folder. Variables beyond [`MAX_BYTES`] are left out.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn try_read(folder: &Path) -> io::Result<Self> {
        let mut raw = super::read(&folder.join("environ"))?;
        if raw.len() as u64 == MAX_BYTES {
            // The last value may be cut.
            raw.truncate(raw.iter().rposition(|byte| *byte == 0).unwrap_or(0));
        }
        Ok(Self(raw))
    }

    /// Iterates over the variables.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.split(|byte| *byte == 0).filter_map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            Some((&entry[..equals], &entry[equals + 1..]))
        })
    }

    /// Returns the value of a variable as text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.iter().find(|(this, _)| *this == name.as_bytes())?;
        std::str::from_utf8(found.1).ok()
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }

    /// `SLURM_JOB_ID`.
    pub fn job(&self) -> Option<JobId> {
        self.number("SLURM_JOB_ID").map(JobId)
    }

    /// Returns `SLURM_STEP_ID`, by name where SLURM has special numbers for steps without `srun`.
    pub fn step(&self) -> Option<Text> {
        Some(match self.number("SLURM_STEP_ID")? {
            0xffff_fffa => "interactive".into(),
            0xffff_fffb => "batch".into(),
            0xffff_fffc => "extern".into(),
            number => number.to_string().into(),
        })
    }

    /// Returns the rank in a parallel program. A batch script has the variables of task 0, but no
    /// rank; the step distinguishes it.
    pub fn rank(&self, step: Option<&str>) -> Option<Rank> {
        let alone = matches!(step, Some("batch" | "interactive" | "extern"));
        let schemes = &SCHEMES[..SCHEMES.len() - usize::from(alone)];
        let (scheme, global) =
            schemes.iter().find_map(|scheme| Some((scheme, self.number(scheme.global)?)))?;
        // A launcher without this variable leaves it to the next one.
        let reported = |own: Option<&str>, names: fn(&Scheme) -> Option<&'static str>| {
            own.and_then(|name| self.number(name))
                .or_else(|| schemes.iter().filter_map(names).find_map(|name| self.number(name)))
        };
        let local = reported(scheme.local, |scheme| scheme.local);
        let world = reported(scheme.world, |scheme| scheme.world).filter(|world| *world > global);
        Some(Rank { global, local, world })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environ(entries: &[&str]) -> Environ {
        Environ(entries.join("\0").into_bytes())
    }

    #[test]
    fn the_innermost_launcher_wins() {
        let srun = ["SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8"];
        assert_eq!(environ(&srun).rank(None), Some(Rank { global: 3, local: Some(1), world: Some(8) }));
        let torchrun = [&srun[..], &["RANK=17", "LOCAL_RANK=5", "WORLD_SIZE=64"]].concat();
        let rank = Rank { global: 17, local: Some(5), world: Some(64) };
        assert_eq!(environ(&torchrun).rank(Some("0")), Some(rank));
        let pmix = [&srun[..], &["PMIX_RANK=2"]].concat();
        assert_eq!(environ(&pmix).rank(None), Some(Rank { global: 2, local: Some(1), world: Some(8) }));
    }

    #[test]
    fn a_batch_script_has_no_rank_but_its_own_launches_do() {
        let batch = ["SLURM_PROCID=0", "SLURM_NTASKS=8"];
        assert_eq!(environ(&batch).rank(Some("batch")), None);
        let torchrun = [&batch[..], &["RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=4"]].concat();
        assert_eq!(environ(&torchrun).rank(Some("batch")).unwrap().global, 1);
    }

    #[test]
    fn a_rank_beyond_the_world_size_is_ignored() {
        assert_eq!(environ(&["RANK=4", "SLURM_NTASKS=2"]).rank(None).unwrap().world, None);
    }

    #[test]
    fn only_job_and_step_are_parsed_from_cgroups() {
        let found = environ(&["A=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=4294967291"]);
        assert_eq!((found.job(), found.step()), (Some(JobId(77)), Some("batch".into())));
        assert_eq!(environ(&["SLURM_STEP_ID=3"]).step(), Some("3".into()));
        assert_eq!(environ(&["XSLURM_JOB_ID=77", "SLURM_JOB_IDX=3", "=x", ""]).job(), None);
    }

    #[test]
    fn a_value_that_is_cut_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let filler = "x".repeat(usize::try_from(MAX_BYTES).unwrap() - "A=\0B=1".len());
        std::fs::write(folder.path().join("environ"), format!("A={filler}\0B=12\0")).unwrap();
        let read = Environ::read(folder.path());
        assert_eq!((read.get("A").map(str::len), read.get("B")), (Some(filler.len()), None));
    }

    proptest! {
        #[test]
        fn no_environment_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let environ = Environ(bytes);
            let _ = (environ.job(), environ.step(), environ.rank(None), environ.iter().count());
        }
    }
}
