//! What each kind of finding means, what to do about it, and how fast it is found.

use nodeglass_protocol::finding::FindingKind;

/// What is known of a kind.
#[derive(Clone, Copy, Debug)]
pub struct KindInfo {
    /// The condition, as a sentence.
    pub condition: &'static str,
    /// What it usually means.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
    /// For how long it must be seen before it is listed, in ms, in addition to what the condition requires.
    pub confirm_ms: u64,
    /// How long it stays listed as active after it was last seen, in ms.
    pub clear_ms: u64,
    /// Maximum detection latency, in ms.
    pub found_within_ms: u64,
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

/// Returns what is known of a kind.
#[rustfmt::skip]
pub fn info(kind: FindingKind) -> KindInfo {
    let entry = |condition, meaning, advice, confirm_ms, clear_ms, found_within_ms| {
        KindInfo { condition, meaning, advice, confirm_ms, clear_ms, found_within_ms }
    };
    match kind {
        FindingKind::UnusedGpus => entry(
            "utilisation of at most 5 % in every ten seconds of ten minutes, on all GPUs of the job since its start, or on some while \
             half of the others have 20 % or more on average",
            "The program uses fewer GPUs than the job has, or has not begun to use them.",
            "Request only as many GPUs as the program uses, or start one process for each of them",
            0, 60 * SECOND, 11 * MINUTE),
        FindingKind::IdleGpus => entry(
            "utilisation of at most 5 % in every ten seconds of ten minutes on all GPUs of the job, after work",
            "The program finished or crashed without ending the job, or waits for input or for a person.",
            "See the log; if the work is done, end the job with scancel",
            0, 60 * SECOND, 11 * MINUTE),
        FindingKind::NoProcess => entry(
            "no process on any GPU of the job for five minutes, although process lists are readable",
            "The program does not use the GPUs, failed to find them, or has ended while the batch script goes on.",
            "See the log for CUDA errors; check that the program was built with CUDA and sees its devices",
            5 * MINUTE, 30 * SECOND, 6 * MINUTE),
        FindingKind::CollectiveHang => entry(
            "each of two or more GPUs, which worked before, at 95 % utilisation or more, at a third of its power limit or less, with flat \
             memory and silent counters (SM activity below 25 %, DRAM and tensor activity below 10 %, PCIe and NVLink below 50 MB/s), for \
             two minutes; or at least half of them, while the others do nothing, for five minutes. Not while the log grows or the job uses \
             more than six cores per GPU. A job that was not seen to work must have a log that is silent for ten minutes",
            "The ranks busy-wait in a collective that never completes: one rank crashed, diverged or waits elsewhere.",
            "Compare the Python stacks of the ranks (py-spy dump), see NCCL's log, and restart from the last checkpoint",
            // Of all GPUs, within two and a half minutes.
            0, 30 * SECOND, 330 * SECOND),
        FindingKind::Straggler => entry(
            "SM clock 12 %, or SM activity or utilisation 20 % below the median of the job's GPUs of the same model, of which there are at \
             least four, in four fifths of the steps of two minutes in which the others worked, and outside of what the others differ by. Not \
             if more than an eighth of the GPUs (and more than one) are so: the program has unequal parts. Nor by activity on a node whose GPUs all have 10 % more, or less, memory in use than the median: \
             a stage of a pipeline. Where ranks show several programs, \
             a reading (throttling, a link, the power limit) must explain it",
            "In synchronous training every other rank waits for the slowest one.",
            "Exclude the node (sbatch --exclude) after the next checkpoint, and report it to the administrators",
            0, 60 * SECOND, 150 * SECOND),
        FindingKind::InputBound => entry(
            "utilisation of 10 to 60 % on average over five minutes, neither idle nor busy in any ten seconds, while the CPUs of \
             the job are fully used or its node waits for a disk",
            "The GPUs wait for data: loading, decoding or augmentation is slower than the training step.",
            "Use more data loader workers, pin memory, prefetch, or move the data to a local disk",
            0, 2 * MINUTE, 6 * MINUTE),
        FindingKind::CommunicationBound => entry(
            "several GPUs at 80 % utilisation or more with SM activity below 45 % and tensor activity below 25 % (without GPM at less \
             than 55 % of the power limit) in four fifths of ten minutes, at 5 GB/s of each NVLink, 35 % of PCIe, or 0.25 GB/s of \
             network for each GPU",
            "Collectives take most of each step, and are not hidden behind computation.",
            "Accumulate gradients over more steps, use larger batches, overlap communication, or fewer nodes; see that NCCL uses NVLink and \
             InfiniBand (NCCL_DEBUG=INFO)",
            0, 2 * MINUTE, 11 * MINUTE),
        FindingKind::MemoryBound => entry(
            "DRAM bandwidth of 70 % or more with tensor activity below 25 %, in four fifths of ten minutes on every GPU of the job",
            "Kernels wait for data in the GPU's own memory: decoding with small batches, element-wise operations, large embeddings.",
            "Fuse kernels (torch.compile, FlashAttention), use larger batches or lower precision; usual when a language model generates",
            0, 2 * MINUTE, 11 * MINUTE),
        FindingKind::LowEfficiency => entry(
            "utilisation of 80 % or more with SM activity below 20 %, or without GPM at less than three tenths of the \
             power limit, over ten minutes",
            "A kernel runs most of the time, but occupies few SMs: small batches, many small kernels, or waiting.",
            "Use a larger batch, mixed precision or compilation (torch.compile, CUDA graphs), or share the GPU",
            0, 2 * MINUTE, 11 * MINUTE),
        FindingKind::SlowerThanModel => entry(
            "power limit, or SM clock under load (while not power-limited) over ten minutes, 12 % below the median of at least three other \
             nodes with the same model",
            "The node is configured differently, or its GPUs are throttled without reporting it.",
            "Report it to the administrators; exclude the node (sbatch --exclude) if the difference matters",
            MINUTE, 2 * MINUTE, 12 * MINUTE),
        FindingKind::OutsideJob => entry(
            "for two minutes, a process that does not belong to a job uses a GPU that SLURM has allocated to this job alone, a process of the job uses a GPU that SLURM has not allocated to it, or a process of no job uses a GPU that no job has",
            "It was left over from an earlier job, started over SSH, or ignores CUDA_VISIBLE_DEVICES; it takes memory and time of the GPU.",
            "Inform its owner or the administrators",
            2 * MINUTE, 30 * SECOND, 3 * MINUTE),
        FindingKind::GpuMemoryForecast => entry(
            "the peaks of each minute grow steadily for fifteen minutes or more while the GPU works, and reach its memory within six hours",
            "The program keeps references to tensors (a list of losses, retained graphs), or its inputs grow.",
            "Save a checkpoint; look for tensors that are kept over steps (torch.cuda.memory_summary)",
            0, 5 * MINUTE, 20 * MINUTE),
        FindingKind::JobMemoryForecast => entry(
            "the memory of the job without page cache is 90 % of its limit on a node or more for a minute, or grows steadily for fifteen minutes \
             or more, and reaches the limit within six hours",
            "At its limit the kernel kills a process of the job (out of memory).",
            "Request more memory (--mem), use fewer data loader workers, or free caches",
            MINUTE, 2 * MINUTE, 22 * MINUTE),
        FindingKind::HostMemory => entry(
            "97 % or more of the memory of the node is in use for a minute, or grows steadily for fifteen minutes or more, no limit of a job \
             bounds it, and it is exhausted within six hours",
            "The kernel is about to kill processes, whoever owns them.",
            "Use less memory on this node; if other processes use it, report that to the administrators",
            MINUTE, 2 * MINUTE, 22 * MINUTE),
        FindingKind::Swapping => entry(
            "a gigabyte of swap or more in use, and processes wait for memory 10 % of the time or more, for a minute",
            "Memory is exhausted and pages are read back from disk: everything is slow.",
            "Use less memory on this node (fewer workers, smaller caches)",
            MINUTE, 2 * MINUTE, 90 * SECOND),
        FindingKind::DiskFull => entry(
            "a local file system or /dev/shm is 95 % full or more",
            "Writes will fail: checkpoints, temporary files, or the shared memory of data loaders.",
            "Free up space there",
            20 * SECOND, MINUTE, 60 * SECOND),
        FindingKind::ClockSkew => entry(
            "the clock of the node differs from the login node's by five seconds or more for a minute",
            "Time synchronization (chrony, ntpd) does not work there. Times in logs are wrong; from five minutes on, munge refuses SLURM's \
             credentials and jobs fail.",
            "Report it to the administrators",
            MINUTE, 2 * MINUTE, 2 * MINUTE),
        FindingKind::HeldMemory => entry(
            "1 GiB of memory or more in use that no visible process holds, for a minute",
            "A process of another container or user holds it, or one that crashed left it behind.",
            "If allocations fail, report it to the administrators: only a reset of the GPU may help",
            MINUTE, 30 * SECOND, 90 * SECOND),
        FindingKind::Thermal => entry(
            "the clock is throttled because of temperature for 20 s",
            "The cooling of the node is insufficient.",
            "Report it to the administrators; exclude the node (sbatch --exclude) if the job waits for it",
            20 * SECOND, 60 * SECOND, 40 * SECOND),
        FindingKind::PowerBrake => entry(
            "the power-brake signal throttles the clock for 20 s",
            "The power supply or the rack is at its limit.",
            "Report it to the administrators",
            20 * SECOND, 60 * SECOND, 40 * SECOND),
        FindingKind::Slowdown => entry(
            "the hardware throttles the clock for 20 s and reports no reason",
            "Heat or the power supply are likely.",
            "Report it to the administrators",
            20 * SECOND, 60 * SECOND, 40 * SECOND),
        FindingKind::MemoryErrors => entry(
            "uncorrected memory errors, a repair of the memory that is pending or failed, or an Xid about the memory (48, 63, 64, 92, 94, 95, \
             140) within the last hour. A warning if the errors are older than the job, or than the first reading",
            "The memory of the GPU is damaged; results since an uncorrected error may be wrong.",
            "Restart from a checkpoint before it on another node, and report it to the administrators",
            0, 30 * SECOND, 20 * SECOND),
        FindingKind::Xid => entry(
            "the driver reported an Xid that is not about the memory within the last hour",
            "The number states whether the program or the GPU is the likely cause.",
            "See the log of the program; if the GPU is the cause, report it to the administrators",
            0, 0, 20 * SECOND),
        FindingKind::GpuLost => entry(
            "the GPU can no longer be read",
            "It fell off the bus, or its driver failed.",
            "Processes on it fail or hang; the node usually needs a reboot: report it to the administrators",
            0, 20 * SECOND, 20 * SECOND),
        FindingKind::NvlinkDown => entry(
            "an NVLink is down that is up on all other GPUs of the model on the node, or others of its bridge are up",
            "Transfers between GPUs are slower, or fail.",
            "Report it to the administrators",
            10 * SECOND, 30 * SECOND, 30 * SECOND),
        FindingKind::PcieNarrow => entry(
            "fewer PCIe lanes than GPU and slot have",
            "Transfers from the host are slower.",
            "Report it to the administrators",
            10 * SECOND, 30 * SECOND, 30 * SECOND),
        FindingKind::Unlicensed => entry(
            "a vGPU of this machine has no license",
            "The driver lowers its performance over time and may disable CUDA.",
            "Report it to the administrators",
            10 * SECOND, 30 * SECOND, 30 * SECOND),
        FindingKind::StuckProcess => entry(
            "a process on a GPU is a zombie or in uninterruptible sleep (D state) for two minutes, and its memory does not change",
            "Its parent does not reap it, or it waits for a file system or a driver that does not answer.",
            "End its parent; if it waits for a file system, report it to the administrators",
            0, 30 * SECOND, 150 * SECOND),
        FindingKind::NodeUnreachable => entry(
            "the node does not answer for 15 s, refuses the connection, or its probe cannot be started again",
            "The node hangs or is down, or the network is interrupted.",
            "Check whether the node is up (sinfo -R -n NODE); the relay retries by itself, and shows the last known values until then",
            0, 0, 30 * SECOND),
        FindingKind::DriverHang => entry(
            "a call of the GPU driver does not return",
            "The driver or a GPU hangs; processes on it may hang as well.",
            "Report it to the administrators if it does not recover",
            0, 10 * SECOND, 30 * SECOND),
        FindingKind::NoGpu => entry(
            "a job has GPUs on a node on which none can be read",
            "The driver is not loaded, or does not match its library.",
            "Report it to the administrators",
            30 * SECOND, 30 * SECOND, 60 * SECOND),
        FindingKind::PendingForever => entry(
            "the job waits for something that SLURM will not provide by itself",
            "Its request, account or dependency must be changed, or it is held.",
            "Change, release or cancel the job; if an administrator holds it, ask why",
            0, 0, 30 * SECOND),
        FindingKind::TimeLimit => entry(
            "at the rate of progress in its log, a running job will not finish before its time limit; or less than a tenth of the limit and less than \
             an hour is left, and its log does not show that it finishes in time. The rate counts once it was measured for ten minutes. The severity is info if a \
             pending job depends on this one, because a chain resumes from checkpoints; that of the reminder always is",
            "SLURM ends the job at its limit, whatever it has saved.",
            "Save a checkpoint in time (--signal), or request a longer limit (scontrol update TimeLimit)",
            0, 0, 30 * SECOND),
        FindingKind::Failed => entry(
            "the job ended abnormally within the last hour",
            "SLURM states how it ended.",
            "Check the end of its log",
            0, 0, 30 * SECOND),
        FindingKind::CustomRule => entry(
            "a rule of yours (`--finding-rule`) has held for the time that it states; the time in this table follows it",
            "The rule states it.",
            "See the text of the rule",
            0, 30 * SECOND, 30 * SECOND),
        FindingKind::LogMessage => entry(
            "the log of a running job matches a pattern (`relay findings explain log_message` lists them). Most patterns count only if a program that counts its steps makes no progress a minute later, and a NaN loss only if it is repeated or the last one; \
             those that end a program, such as a traceback, only if the log ends with them: for 30 s, or while the GPUs work, for three \
             times its longest pause",
            "The program states what is wrong.",
            "See the log",
            // Within a minute, unless the GPUs go on.
            0, 30 * SECOND, 11 * MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_rules::text;

    const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FINDINGS.md");
    const HEADER: &str = "| kind | found when | within | usual meaning | what to do |";

    /// The table of all kinds as `docs/FINDINGS.md` has it; `NODEGLASS_FREEZE=1` renews it.
    #[test]
    fn the_document_describes_every_kind() {
        let row = |kind: &FindingKind| {
            let entry = info(*kind);
            let within = text::exact_span(entry.found_within_ms / 1_000);
            let (condition, meaning, advice) = (entry.condition, entry.meaning, entry.advice);
            format!("| `{}` | {condition} | {within} | {meaning} | {advice} |", kind.name())
        };
        let rows: Vec<String> = FindingKind::ALL.iter().map(row).collect();
        let table = format!("{HEADER}\n|---|---|---|---|---|\n{}\n", rows.join("\n"));
        let document = std::fs::read_to_string(DOCUMENT).unwrap();
        if std::env::var_os("NODEGLASS_FREEZE").is_some() {
            let (before, rest) = document.split_once(HEADER).unwrap();
            let after = rest.find("\n\n").map_or("", |end| &rest[end..]);
            std::fs::write(DOCUMENT, format!("{before}{}{after}", table.trim_end())).unwrap();
            return;
        }
        assert!(document.contains(table.trim_end()), "renew docs/FINDINGS.md with NODEGLASS_FREEZE=1");
    }

    #[test]
    fn what_must_last_is_found_in_time() {
        for kind in FindingKind::ALL {
            let entry = info(*kind);
            assert!(entry.confirm_ms < entry.found_within_ms, "{kind:?}");
            assert!(
                entry.advice.chars().last().is_some_and(|last| last != '.'),
                "{kind:?}: a clause, not a sentence"
            );
        }
    }
}
