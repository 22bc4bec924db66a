//! The catalogue of findings: for each kind its names, when it is found, what it means and how it is treated.
//!
//! The page, terminals, notices, the API, metrics and `docs/FINDINGS.md` read it.

use super::FindingSeverity;
use serde::{Deserialize, Serialize};

/// How findings of a kind are confirmed, listed, priced, shared and captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingTrait {
    /// It is judged by what a job does: while the job is suspended, nothing is known of it.
    OfWork,
    /// It is about a node as a whole: it affects every job there, and its texts name none.
    OfNode,
    /// The newest readings of a GPU alone show it: while the node is not read, it neither goes on nor ends.
    Momentary,
    /// It is about an event, which expires, and not about a condition, which ends.
    Event,
    /// A node or its hardware causes it, and not what a job does.
    Fault,
    /// It is a fault if it is an error: most Xids are errors of programs, which are warnings.
    FaultIfError,
    /// It lowers the clock of a GPU. One entry, and one notice, states that and the straggler that this causes.
    LowersClock,
    /// The GPUs that it costs are busy or gone: their hours count as lost, not as idle.
    Lost,
    /// Work stopped: the processes of the job are captured when it begins.
    Captured,
    /// It is about processes of a GPU, or what they left there: guests who see no processes do not see it.
    OfProcesses,
    /// It states readings of a host: guests who see no hosts do not see it.
    OfHost,
    /// It names paths: guests from whom these are hidden do not see it.
    NamesPaths,
    /// It names processes of others, is in the owner's words, or quotes a log: guests do not see it.
    Private,
    /// Its evidence may quote programs or name other jobs: guests see it without evidence.
    PrivateEvidence,
}

/// Defines [`FindingKind`] with what is known of each kind.
macro_rules! kinds {
    ($($kind:ident {
        name: $name:literal, label: $label:literal, severity: $severity:ident, is: [$($is:ident),*],
        confirm_s: $confirm_s:literal, clear_s: $clear_s:literal, found_within_s: $found_within_s:literal,
        condition: $condition:literal,
        meaning: $meaning:literal,
        advice: $advice:literal
    })*) => {
        /// Kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum FindingKind {
            $(#[doc = concat!("Found when: ", $condition, ".")] $kind,)*
        }

        // A function for each column: the page links only the columns that it shows.
        impl FindingKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns its name in the API, in metrics and on the command line: `idle_gpus`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns what its findings are about, in a few words: `GPU too hot`.
            pub fn label(self) -> &'static str {
                match self { $(Self::$kind => $label,)* }
            }

            /// Returns how severe its findings are unless their detector states otherwise.
            pub fn severity(self) -> FindingSeverity {
                match self { $(Self::$kind => FindingSeverity::$severity,)* }
            }

            /// Returns the condition, a clause.
            pub fn condition(self) -> &'static str {
                match self { $(Self::$kind => $condition,)* }
            }

            /// Returns what it usually means, a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }

            /// Returns what to do about it, a clause.
            pub fn advice(self) -> &'static str {
                match self { $(Self::$kind => $advice,)* }
            }

            /// Returns for how long it must be seen before it is listed, in ms, in addition to what the condition
            /// requires.
            pub fn confirm_ms(self) -> u64 {
                match self { $(Self::$kind => 1_000 * $confirm_s,)* }
            }

            /// Returns how long it stays listed as active after it was last seen, in ms.
            pub fn clear_ms(self) -> u64 {
                match self { $(Self::$kind => 1_000 * $clear_s,)* }
            }

            /// Returns the maximum detection latency with the default thresholds, in ms.
            pub fn found_within_ms(self) -> u64 {
                match self { $(Self::$kind => 1_000 * $found_within_s,)* }
            }

            /// Returns whether its findings are treated so.
            pub fn is(self, what: FindingTrait) -> bool {
                let traits: &[FindingTrait] = match self { $(Self::$kind => &[$(FindingTrait::$is),*],)* };
                traits.contains(&what)
            }
        }
    };
}

// Their numbers are part of the wire: new ones are added at the end.
kinds! {
    UnusedGpus { name: "unused_gpus", label: "unused GPUs", severity: Warning, is: [OfWork],
        confirm_s: 0, clear_s: 60, found_within_s: 660,
        condition: "utilisation of at most 5 % in every ten seconds of ten minutes, on all GPUs of the job since its \
            start, or on some while half of the others have 20 % or more on average; on some since the start, for half an \
            hour in which half of the others were in use; or on some for an hour in which others were used",
        meaning: "The program uses fewer GPUs than the job has, or has not begun to use them.",
        advice: "Request only as many GPUs as the program uses, or start one process for each of them" }
    IdleGpus { name: "idle_gpus", label: "idle GPUs", severity: Warning, is: [OfWork, Captured],
        confirm_s: 0, clear_s: 60, found_within_s: 660,
        condition: "utilisation of at most 5 % in every ten seconds of ten minutes on all GPUs of the job, after work",
        meaning: "The program finished or crashed without ending the job, or waits for input or for a person.",
        advice: "See the log; if the work is done, end the job with scancel" }
    NoProcess { name: "no_process", label: "no process on the GPUs", severity: Warning, is: [OfWork, Captured],
        confirm_s: 300, clear_s: 30, found_within_s: 360,
        condition: "no process on any GPU of the job for five minutes, although process lists are readable",
        meaning: "The program does not use the GPUs, failed to find them, or has ended while the batch script goes on.",
        advice: "See the log for CUDA errors; check that the program was built with CUDA and sees its devices" }
    CollectiveHang { name: "collective_hang", label: "looks hung", severity: Error, is: [OfWork, Lost, Captured],
        // Of all GPUs, within two and a half minutes.
        confirm_s: 0, clear_s: 30, found_within_s: 330,
        condition: "each of two or more GPUs, which worked before, at 95 % utilisation or more, at a third of its power \
            limit or less, with flat memory and silent counters (SM activity below 25 %, DRAM and tensor activity below \
            10 %, PCIe and NVLink below 50 MB/s), for two minutes; or at least half of them, while the others do nothing, \
            for five minutes. Not while the log grows or the job uses more than six cores per GPU. A job that was not \
            seen to work must have a log that is silent for ten minutes",
        meaning: "The ranks busy-wait in a collective that never completes: one rank crashed, diverged or waits elsewhere.",
        advice: "Compare the Python stacks of the ranks (py-spy dump), see NCCL's log, and restart from the last checkpoint" }
    Straggler { name: "straggler", label: "GPU slower than its peers", severity: Warning, is: [OfWork, Fault, Lost],
        confirm_s: 0, clear_s: 60, found_within_s: 150,
        condition: "SM clock 12 %, or SM activity or utilisation 20 % below the median of the job's GPUs of the same \
            model, of which there are at least four, in four fifths of the steps of two minutes in which the others \
            worked, and outside of what the others differ by. Not if more than an eighth of the GPUs (and more than one) \
            are so: the program has unequal parts. Nor by activity on a node whose GPUs all have 10 % more, or less, \
            memory in use than the median: a stage of a pipeline. Where ranks show several programs, a reading \
            (throttling, a link, the power limit) must explain it",
        meaning: "In synchronous training every other rank waits for the slowest one.",
        advice: "Exclude the node (sbatch --exclude) after the next checkpoint, and report it to the administrators" }
    InputBound { name: "input_bound", label: "waits for input", severity: Info, is: [OfWork],
        confirm_s: 0, clear_s: 120, found_within_s: 360,
        condition: "utilisation of 10 to 60 % on average over five minutes, neither idle nor busy in any ten seconds, \
            while the CPUs of the job are fully used or its node waits for a disk",
        meaning: "The GPUs wait for data: loading, decoding or augmentation is slower than the training step.",
        advice: "Use more data loader workers, pin memory, prefetch, or move the data to a local disk" }
    LowEfficiency { name: "low_efficiency", label: "low efficiency", severity: Info, is: [OfWork],
        confirm_s: 0, clear_s: 120, found_within_s: 660,
        condition: "utilisation of 80 % or more with SM activity below 20 %, or without GPM at less than three tenths of \
            the power limit, over ten minutes",
        meaning: "A kernel runs most of the time, but occupies few SMs: small batches, many small kernels, or waiting.",
        advice: "Use a larger batch, mixed precision or compilation (torch.compile, CUDA graphs), or share the GPU" }
    GpuMemoryForecast { name: "gpu_memory_forecast", label: "GPU memory fills up", severity: Warning, is: [OfWork],
        confirm_s: 0, clear_s: 300, found_within_s: 1200,
        condition: "the peaks of each minute grow steadily for fifteen minutes or more while the GPU works, and reach its \
            memory within six hours",
        meaning: "The program keeps references to tensors (a list of losses, retained graphs), or its inputs grow.",
        advice: "Save a checkpoint; look for tensors that are kept over steps (torch.cuda.memory_summary)" }
    JobMemoryForecast { name: "job_memory_forecast", label: "memory limit", severity: Warning, is: [OfWork],
        confirm_s: 60, clear_s: 120, found_within_s: 1320,
        condition: "the memory of the job without page cache is 90 % of its limit on a node or more for a minute, or \
            grows steadily for fifteen minutes or more, and reaches the limit within six hours",
        meaning: "At its limit the kernel kills a process of the job (out of memory).",
        advice: "Request more memory (--mem), use fewer data loader workers, or free caches" }
    HostMemory { name: "host_memory", label: "memory of a node", severity: Warning, is: [OfNode, OfHost],
        confirm_s: 60, clear_s: 120, found_within_s: 1320,
        condition: "97 % or more of the memory of the node is in use for a minute, or grows steadily for fifteen minutes \
            or more, no limit of a job bounds it, and it is exhausted within six hours",
        meaning: "The kernel is about to kill processes of any user.",
        advice: "Use less memory on this node; if other processes use it, report that to the administrators" }
    Swapping { name: "swapping", label: "swapping", severity: Warning, is: [OfNode, OfHost],
        confirm_s: 60, clear_s: 120, found_within_s: 90,
        condition: "a gigabyte of swap or more in use, and processes wait for memory 10 % of the time or more, for a minute",
        meaning: "Memory is exhausted and pages are read back from disk: everything is slow.",
        advice: "Use less memory on this node (fewer workers, smaller caches)" }
    DiskFull { name: "disk_full", label: "disk full", severity: Warning, is: [OfNode, OfHost, NamesPaths],
        confirm_s: 20, clear_s: 60, found_within_s: 60,
        condition: "a local file system or /dev/shm is 95 % full or more",
        meaning: "Writes will fail: checkpoints, temporary files, or the shared memory of data loaders.",
        advice: "Free up space there" }
    HeldMemory { name: "held_memory", label: "held GPU memory", severity: Warning, is: [Momentary, OfProcesses],
        confirm_s: 60, clear_s: 30, found_within_s: 90,
        condition: "1 GiB of memory or more in use that no visible process holds, for a minute",
        meaning: "A process of another container or user holds it, or one that crashed left it behind.",
        advice: "If allocations fail, report it to the administrators: only a reset of the GPU may help" }
    Thermal { name: "thermal", label: "GPU too hot", severity: Warning, is: [Momentary, Fault, LowersClock],
        confirm_s: 20, clear_s: 60, found_within_s: 40,
        condition: "the clock is throttled because of temperature for 20 s",
        meaning: "The cooling of the node is insufficient.",
        advice: "Report it to the administrators; exclude the node (sbatch --exclude) if the job waits for it" }
    PowerBrake { name: "power_brake", label: "power brake", severity: Warning, is: [Momentary, Fault, LowersClock],
        confirm_s: 20, clear_s: 60, found_within_s: 40,
        condition: "the power-brake signal throttles the clock for 20 s",
        meaning: "The power supply or the rack is at its limit.",
        advice: "Report it to the administrators" }
    Slowdown { name: "slowdown", label: "GPU slowed down by the hardware", severity: Warning, is: [Momentary, Fault, LowersClock],
        confirm_s: 20, clear_s: 60, found_within_s: 40,
        condition: "the hardware throttles the clock for 20 s and reports no reason",
        meaning: "Heat or the power supply are likely.",
        advice: "Report it to the administrators" }
    MemoryErrors { name: "memory_errors", label: "GPU memory errors", severity: Warning, is: [Momentary, Fault],
        confirm_s: 0, clear_s: 30, found_within_s: 20,
        condition: "uncorrected memory errors, a repair of the memory that is pending or failed, or an Xid about the \
            memory (48, 63, 64, 92, 94, 95, 140) within the last hour. A warning if the errors are older than the job, or \
            than the first reading",
        meaning: "The memory of the GPU is damaged; results since an uncorrected error may be wrong.",
        advice: "Restart from a checkpoint before it on another node, and report it to the administrators" }
    Xid { name: "xid", label: "Xid", severity: Warning, is: [Event, FaultIfError],
        confirm_s: 0, clear_s: 0, found_within_s: 20,
        condition: "the driver reported an Xid that is not about the memory within the last hour",
        meaning: "The number states whether the program or the GPU is the likely cause.",
        advice: "See the log of the program; if the GPU is the cause, report it to the administrators" }
    GpuLost { name: "gpu_lost", label: "GPU lost", severity: Error, is: [Momentary, Fault, Lost],
        confirm_s: 0, clear_s: 20, found_within_s: 20,
        condition: "the GPU can no longer be read. A warning if no listed job uses it",
        meaning: "It fell off the bus, or its driver failed.",
        advice: "Processes on it fail or hang; the node usually needs a reboot: report it to the administrators" }
    NvlinkDown { name: "nvlink_down", label: "NVLink down", severity: Warning, is: [Momentary, Fault],
        confirm_s: 10, clear_s: 30, found_within_s: 30,
        condition: "an NVLink is down that is up on all other GPUs of the model on the node, or others of its bridge are up",
        meaning: "Transfers between GPUs are slower, or fail.",
        advice: "Report it to the administrators" }
    PcieNarrow { name: "pcie_narrow", label: "PCIe lanes missing", severity: Warning, is: [Momentary, Fault],
        confirm_s: 10, clear_s: 30, found_within_s: 30,
        condition: "fewer PCIe lanes than GPU and slot have",
        meaning: "Transfers from the host are slower.",
        advice: "Report it to the administrators" }
    Unlicensed { name: "unlicensed", label: "no vGPU license", severity: Warning, is: [Momentary],
        confirm_s: 10, clear_s: 30, found_within_s: 30,
        condition: "a vGPU of this machine has no license",
        meaning: "The driver lowers its performance over time and may disable CUDA.",
        advice: "Report it to the administrators" }
    StuckProcess { name: "stuck_process", label: "stuck process", severity: Warning, is: [Momentary, Captured, OfProcesses],
        confirm_s: 0, clear_s: 30, found_within_s: 150,
        condition: "a process on a GPU is a zombie or in uninterruptible sleep (D state) for two minutes, and its memory \
            does not change",
        meaning: "Its parent does not reap it, or it waits for a file system or a driver that does not respond.",
        advice: "End its parent; if it waits for a file system, report it to the administrators" }
    NodeUnreachable { name: "node_unreachable", label: "node unreachable", severity: Error, is: [OfNode, Fault, PrivateEvidence],
        confirm_s: 0, clear_s: 0, found_within_s: 30,
        condition: "the node does not respond for 15 s, refuses the connection, or its probe cannot be started again",
        meaning: "The node hangs or is down, or the network is interrupted.",
        advice: "Check whether the node is up (sinfo -R -n NODE); the relay retries by itself, and shows the last known \
            values until then" }
    DriverHang { name: "driver_hang", label: "GPU driver hangs", severity: Error, is: [OfNode, Fault],
        confirm_s: 0, clear_s: 10, found_within_s: 30,
        condition: "a call of the GPU driver does not return",
        meaning: "The driver or a GPU hangs; processes on it may hang as well.",
        advice: "Report it to the administrators if it does not recover" }
    NoGpu { name: "no_gpu", label: "no GPU found", severity: Error, is: [OfNode, Fault],
        confirm_s: 30, clear_s: 30, found_within_s: 60,
        condition: "a job has GPUs on a node on which none can be read",
        meaning: "The driver is not loaded, or does not match its library.",
        advice: "Report it to the administrators" }
    PendingForever { name: "pending_forever", label: "pending forever", severity: Warning, is: [],
        confirm_s: 0, clear_s: 0, found_within_s: 30,
        condition: "the job waits for something that SLURM will not provide by itself",
        meaning: "Its request, account or dependency must be changed, or it is held.",
        advice: "Change, release or cancel the job; if an administrator holds it, ask why" }
    TimeLimit { name: "time_limit", label: "time limit", severity: Info, is: [],
        confirm_s: 0, clear_s: 0, found_within_s: 30,
        condition: "at the rate of progress in its log, a running job will not finish before its time limit; or less than \
            a tenth of the limit and less than an hour is left, and its log does not show that it finishes in time. The \
            rate counts once it was measured for ten minutes. The severity is info if a pending job depends on this one, \
            because a chain resumes from checkpoints; that of the reminder always is",
        meaning: "SLURM ends the job at its limit, also without a checkpoint.",
        advice: "Save a checkpoint in time (--signal), or request a longer limit (scontrol update TimeLimit)" }
    Failed { name: "failed", label: "failed", severity: Warning, is: [Event, PrivateEvidence],
        confirm_s: 0, clear_s: 0, found_within_s: 30,
        condition: "the job ended abnormally within the last hour; the page lists it for a week, until it is dismissed",
        meaning: "SLURM states how it ended.",
        advice: "Check the end of its log" }
    LogMessage { name: "log_message", label: "message in the log", severity: Warning, is: [OfWork, Private],
        // Within a minute, unless the GPUs go on.
        confirm_s: 0, clear_s: 30, found_within_s: 660,
        condition: "the log of a running job matches a pattern (`relay findings explain log_message` lists them). Most \
            patterns count only if a program that counts its steps makes no progress a minute later, and a NaN loss only \
            if it is repeated or the last one; those that end a program, such as a traceback, only if the log ends with \
            them: for 30 s, or while the GPUs work, for three times its longest pause",
        meaning: "The program states what is wrong.",
        advice: "See the log" }
    CommunicationBound { name: "communication_bound", label: "limited by communication", severity: Info, is: [OfWork, OfHost],
        confirm_s: 0, clear_s: 120, found_within_s: 660,
        condition: "several GPUs at 80 % utilisation or more with SM activity below 45 % and tensor activity below 25 % \
            (without GPM at less than 55 % of the power limit) in four fifths of ten minutes, at 5 GB/s of each NVLink, \
            35 % of PCIe, or 0.25 GB/s of network for each GPU",
        meaning: "Collectives take most of each step, and are not hidden behind computation.",
        advice: "Accumulate gradients over more steps, use larger batches, overlap communication, or fewer nodes; see \
            that NCCL uses NVLink and InfiniBand (NCCL_DEBUG=INFO)" }
    MemoryBound { name: "memory_bound", label: "limited by GPU memory bandwidth", severity: Info, is: [OfWork],
        confirm_s: 0, clear_s: 120, found_within_s: 660,
        condition: "DRAM bandwidth of 70 % or more with tensor activity below 25 %, in four fifths of ten minutes on \
            every GPU of the job",
        meaning: "Kernels wait for data in the GPU's own memory: decoding with small batches, element-wise operations, \
            large embeddings.",
        advice: "Fuse kernels (torch.compile, FlashAttention), use larger batches or lower precision; usual when a \
            language model generates" }
    SlowerThanModel { name: "slower_than_model", label: "slower than others of its model", severity: Warning, is: [OfWork, Fault],
        confirm_s: 60, clear_s: 120, found_within_s: 720,
        condition: "power limit, or SM clock under load (while not power-limited) over ten minutes, 12 % below the median \
            of at least three other nodes with the same model",
        meaning: "The node is configured differently, or its GPUs are throttled without reporting it.",
        advice: "Report it to the administrators; exclude the node (sbatch --exclude) if the difference matters" }
    OutsideJob { name: "outside_job", label: "process outside of a job", severity: Warning, is: [Private],
        confirm_s: 120, clear_s: 30, found_within_s: 180,
        condition: "for two minutes, a process that does not belong to a job uses a GPU that SLURM has allocated to this \
            job alone, a process of the job uses a GPU that SLURM has not allocated to it, or a process of no job uses a \
            GPU that no job has",
        meaning: "It was left over from an earlier job, started over SSH, or ignores CUDA_VISIBLE_DEVICES; it takes \
            memory and time of the GPU.",
        advice: "Inform its owner or the administrators" }
    ClockSkew { name: "clock_skew", label: "clock of a node", severity: Warning, is: [OfNode, Fault],
        confirm_s: 60, clear_s: 120, found_within_s: 120,
        condition: "the clock of the node differs from the login node's by five seconds or more for a minute",
        meaning: "Time synchronization (chrony, ntpd) does not work there. Times in logs are wrong; from five minutes on, \
            munge refuses SLURM's credentials and jobs fail.",
        advice: "Report it to the administrators" }
    CustomRule { name: "custom_rule", label: "own rule", severity: Warning, is: [Private],
        confirm_s: 0, clear_s: 30, found_within_s: 30,
        condition: "a rule of yours (`--finding-rule`) has held for the time that it states; the time in this table \
            follows it",
        meaning: "The rule states it.",
        advice: "See the text of the rule" }
    LoginRefused { name: "login_refused", label: "login refused", severity: Error, is: [OfNode, PrivateEvidence],
        confirm_s: 0, clear_s: 0, found_within_s: 30,
        condition: "the node does not accept your keys or ticket, or is not tried because three others refused them",
        meaning: "The SSH agent is gone, the ticket has expired, or the key is not accepted; for the same reason on all of \
            these nodes.",
        advice: "Load the key or renew the ticket; the relay then tries again by itself" }
    MostlyIdle { name: "mostly_idle", label: "mostly idle GPUs", severity: Warning, is: [OfWork],
        confirm_s: 0, clear_s: 600, found_within_s: 3720,
        condition: "utilisation (of MIG instances, SM activity) of at most 10 % on average over an hour, of which four \
            fifths are known, and over the last ten minutes, of all GPUs of the job together, while none of `idle_gpus`, `unused_gpus`, `no_process` and `collective_hang` is found",
        meaning: "The GPUs work in short bursts: a notebook, debugging, a server with few requests, or a program that \
            computes on the CPUs.",
        advice: "Use a smaller GPU or MIG instance, or a shared one, for interactive work, submit batch jobs that end, or end \
            the job with scancel in pauses" }
}

impl FindingKind {
    /// Returns whether it is about an event, which expires, and not about a condition, which ends.
    pub fn is_event(self) -> bool {
        self.is(FindingTrait::Event)
    }

    /// Returns whether a finding of this kind is a fault of its nodes, and not of what a job does.
    pub fn is_fault(self, is_error: bool) -> bool {
        self.is(FindingTrait::Fault) || is_error && self.is(FindingTrait::FaultIfError)
    }

    /// Returns the kind with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_is_that_of_its_json_form() {
        for kind in FindingKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(FindingKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(FindingKind::from_name("none"), None);
    }

    #[test]
    fn what_must_last_is_found_in_time() {
        for kind in FindingKind::ALL {
            assert!(kind.confirm_ms() < kind.found_within_ms(), "{kind:?}");
            assert!(!kind.advice().ends_with('.'), "{kind:?}: a clause, not a sentence");
        }
    }
}
