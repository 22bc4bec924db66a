//! Real processes with an argument `--gpus=0,1` are listed as CUDA programs.

use crate::state::Process;
use std::fs;

/// Wrappers whose arguments contain another program's, and which use no GPU.
const CARRIERS: [&str; 5] = ["srun", "sbatch", "salloc", "env", "timeout"];

/// A process that claims to use GPUs.
#[derive(Debug, PartialEq)]
pub struct Trainer {
    /// GPU indices.
    pub gpus: Vec<usize>,
    /// Its entry in NVML's list of each of them.
    pub process: Process,
}

/// Returns every process whose arguments contain `--gpus=LIST`, injected by pid.
///
/// It reads arguments and not the environment, because other users' arguments can be read, too.
pub fn trainers() -> Vec<Trainer> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            trainer(pid, &fs::read(entry.path().join("cmdline")).ok()?)
        })
        .collect();
    found.sort_by_key(|trainer| trainer.process.pid);
    found
}

/// Parses `--gpus=0,1` and `--gpu-mem=41G` (or `512M`; default 8 GiB) of a command line.
fn trainer(pid: u32, cmdline: &[u8]) -> Option<Trainer> {
    let arguments = || cmdline.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    let program = arguments().next()?.rsplit('/').next()?;
    if CARRIERS.contains(&program) {
        return None;
    }
    let list = arguments().find_map(|word| word.strip_prefix("--gpus="))?;
    let gpus: Vec<usize> = list.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    let mem = arguments().find_map(|word| mebibytes(word.strip_prefix("--gpu-mem=")?)).unwrap_or(8 << 10);
    Some(Trainer { gpus, process: Process { pid, mem_mib: Some(mem), ..Process::default() } })
}

fn mebibytes(text: &str) -> Option<u64> {
    match text.split_at_checked(text.len().checked_sub(1)?)? {
        (number, "G") => Some(number.parse::<u64>().ok()? << 10),
        (number, "M") => number.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_makes_a_process_a_trainer() {
        let found = trainer(7, b"python\0train.py\0--gpus=0,2\0--gpu-mem=41G\0").unwrap();
        assert_eq!((found.gpus, found.process.mem_mib), (vec![0, 2], Some(41 << 10)));
        assert_eq!(trainer(7, b"python\0train.py\0"), None);
        assert_eq!(trainer(7, b"x\0--gpus=one\0"), None);
        assert_eq!(trainer(7, b"/usr/bin/srun\0train.py\0--gpus=0\0"), None);
    }

    #[test]
    fn a_running_process_is_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x", "sh", "--gpus=77777"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let listed = || trainers().into_iter().any(|t| t.process.pid == child.id() && t.gpus == [77_777]);
        // The kernel closes the old program's files, which is what `spawn` waits for, before it shows the
        // new arguments.
        let found = (0..500).any(|_| {
            listed() || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                false
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }
}
