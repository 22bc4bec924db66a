//! Messages in logs that explain a failure: the built-in patterns, and patterns of the settings.

use nodeglass_protocol::Text;
use nodeglass_protocol::finding::FindingSeverity;
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Maximum number of patterns of the settings.
pub const MAX_CUSTOM: usize = 32;
/// Maximum size of a compiled pattern of the settings, in bytes.
const MAX_COMPILED: usize = 1 << 20;
/// Maximum length of the name of a pattern, in bytes.
const MAX_NAME: usize = 40;

/// A message that is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPattern {
    /// Its name in findings: `cuda_out_of_memory`.
    pub name: Text,
    /// The statement, as part of a sentence: `CUDA is out of memory`.
    pub summary: Text,
    /// Severity.
    pub severity: FindingSeverity,
    /// Advice.
    pub advice: &'static str,
    /// Whether it matters only where the log ends with it: programs handle some errors, and go on.
    pub is_final: bool,
    /// Whether it matters although the program advances: steps with a loss that is not a number are lost.
    pub outlasts_progress: bool,
    source: String,
}

/// The patterns, compiled.
#[derive(Clone, Debug)]
pub struct LogPatterns {
    all: Vec<Arc<LogPattern>>,
    set: RegexSet,
}

/// A pattern of the settings: `NAME=REGEX`.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomPattern(LogPattern);

/// Error of a pattern of the settings.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PatternError {
    /// It has no name, or no expression.
    #[error("write NAME=REGEX, such as loss_spike='loss: [0-9]{{4,}}'")]
    Syntax,
    /// The name is invalid.
    #[error("{0:?} is not a name: use up to {MAX_NAME} lower-case letters, digits and underscores")]
    Name(String),
    /// A built-in pattern has the name.
    #[error("{0} is the name of a built-in pattern: choose another one")]
    BuiltIn(String),
    /// The expression is invalid or too large.
    #[error("{0}")]
    Regex(String),
    /// It matches every line.
    #[error("the expression matches an empty line, and so every line")]
    MatchesAll,
}

impl CustomPattern {
    /// Parses `NAME=REGEX`. What it finds is a warning.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn parse(raw: &str) -> Result<Self, PatternError> {
        let (name, source) = raw.split_once('=').ok_or(PatternError::Syntax)?;
        if source.is_empty() {
            return Err(PatternError::Syntax);
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_name) {
            return Err(PatternError::Name(name.to_owned()));
        }
        if built_in().iter().any(|known| known.name.as_str() == name) {
            return Err(PatternError::BuiltIn(name.to_owned()));
        }
        let regex = RegexBuilder::new(source)
            .size_limit(MAX_COMPILED)
            .build()
            .map_err(|error| PatternError::Regex(error.to_string()))?;
        if regex.is_match("") {
            return Err(PatternError::MatchesAll);
        }
        Ok(Self(LogPattern {
            name: name.into(),
            summary: format!("its log matches {name}").into(),
            severity: FindingSeverity::Warning,
            advice: "See the log",
            is_final: false,
            outlasts_progress: true,
            source: source.to_owned(),
        }))
    }
}

impl fmt::Display for CustomPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.0.name, self.0.source)
    }
}

impl LogPatterns {
    /// The built-in patterns, and further ones.
    pub fn new(custom: &[CustomPattern]) -> Self {
        let custom = custom.iter().take(MAX_CUSTOM).map(|custom| custom.0.clone());
        let all: Vec<Arc<LogPattern>> = built_in().into_iter().chain(custom).map(Arc::new).collect();
        // Each compiled alone; together they may need as much as all of them.
        let set = RegexSetBuilder::new(all.iter().map(|pattern| &pattern.source))
            .size_limit(MAX_COMPILED * all.len())
            .build()
            .unwrap_or_else(|error| {
                tracing::error!(%error, "the patterns of logs cannot be used");
                RegexSet::empty()
            });
        Self { all, set }
    }

    /// The first pattern that a line matches: the list is ordered from specific to general.
    pub fn find(&self, line: &str) -> Option<&Arc<LogPattern>> {
        let found = self.all.get(self.set.matches(line).iter().next()?)?;
        // NCCL retries what it reports there; a batch script goes on in the environment that it has.
        let is_hint = line.contains("NCCL INFO") || line.contains("'conda init'");
        (!is_hint && !states_initial_best(line) && !states_metric(line)).then_some(found)
    }

    /// The patterns in their order.
    pub fn all(&self) -> impl Iterator<Item = &LogPattern> {
        self.all.iter().map(Arc::as_ref)
    }
}

/// Prefixes that tools write before each line: `[rank0]: `, `3: ` (srun), `(Worker pid=12) ` (Ray).
const PREFIX: &str = r"^(\[[^\]]*\]:?\s*|[0-9]+:\s|\([^)]*\)\s)*";

/// The prefix of a rank alone: an exception after the date of a logger was usually handled.
const RANK: &str = r"^(\[rank[0-9]+\]:\s|[0-9]+:\s|\([^)]*pid=[^)]*\)\s)*";

/// The last line of a Python traceback: `RuntimeError: …`, `torch.cuda.OutOfMemoryError: …`.
pub fn is_exception(line: &str) -> bool {
    static EXCEPTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(&format!(r"{PREFIX}[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Interrupt|Exit)(?-u:\b)")).ok()
    });
    EXCEPTION.as_ref().is_some_and(|regex| regex.is_match(line))
}

/// Returns whether a line states the best loss before the first evaluation, which is infinite: `best loss: inf`.
fn states_initial_best(line: &str) -> bool {
    static BEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r#"(?i)(best|lowest|min(imum)?|initial)[\w ]{0,40}loss['"]?(\s+is|\s*[:=])\s*['"]?[-+]?inf"#,
        )
        .ok()
    });
    BEST.as_ref().is_some_and(|regex| regex.is_match(line)) && !line.to_ascii_lowercase().contains("nan")
}

/// Returns whether a line states the value of a metric that is named like an exception: `MeanSquaredError: 0.012`.
fn states_metric(line: &str) -> bool {
    static METRIC: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(&format!(
            r"{PREFIX}[A-Za-z]\w*(Error|Exception): [-+]?([0-9]|nan|inf)[0-9.e+-]*([\s,;|]|$)"
        ))
        .ok()
    });
    METRIC.as_ref().is_some_and(|regex| regex.is_match(line))
}

/// The losses that a line states: the name of each, with the word before it, and whether it is a number.
fn losses(line: &str) -> impl Iterator<Item = (String, bool)> + '_ {
    static LOSS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r#"(?i)((?:[a-z]+ )?[\w./-]*loss\w*)['"]?(?:\s+is|\s*[:=])?\s*['"]?(?:tensor\()?[-+]?(?:(nan|inf)|[0-9])"#,
        )
        .ok()
    });
    let found = LOSS.iter().flat_map(move |regex| regex.captures_iter(line));
    found.map(|loss| (loss[1].to_ascii_lowercase(), loss.get(2).is_none()))
}

/// Returns whether a line states a finite value of a loss that was NaN in `before`. Of another loss, such as the best
/// validation loss, it does not count.
pub fn is_finite_again(line: &str, before: &str) -> bool {
    let lost: Vec<String> =
        losses(before).filter(|(_, is_finite)| !is_finite).map(|(name, _)| name).collect();
    losses(line).any(|(name, is_finite)| is_finite && (lost.is_empty() || lost.contains(&name)))
}

/// From specific to general: a line counts for the first that it matches. `^~` is the start of a line, or of what a
/// launcher lets through; `^@` follows the number of a rank at most.
fn built_in() -> Vec<LogPattern> {
    use FindingSeverity::{Error, Warning};
    let pattern = |name: &str, summary: &str, severity, is_final, advice, source: &str| LogPattern {
        name: name.into(),
        summary: summary.into(),
        severity,
        advice,
        is_final,
        outlasts_progress: matches!(name, "nan_loss" | "xid"),
        source: source.replace("^~", PREFIX).replace("^@", RANK),
    };
    vec![
        pattern(
            "cuda_out_of_memory",
            "CUDA is out of memory",
            Error,
            false,
            "Use a smaller batch, gradient accumulation or activation checkpointing, or more GPUs to shard the model",
            r"(CUDA|HIP) out of memory\. Tried to allocate|RuntimeError: (CUDA|HIP) out of memory(\.|$)|CUDA error: out of memory|(torch|cuda|memory)\.OutOfMemoryError|(cuda|hip)Malloc failed: out of memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED: (Out of memory|.*while trying to allocate)|CUBLAS_STATUS_ALLOC_FAILED|Out of memory error on GPU [0-9]|: OOM when allocating tensor|^~(ERROR: )?Out of (GPU memory trying to allocate|memory on device)",
        ),
        pattern(
            "nccl_timeout",
            "an NCCL collective timed out",
            Error,
            false,
            "One rank did not reach the collective: compare the ranks' logs and stacks, and restart from the last checkpoint",
            r"Watchdog caught collective operation timeout|(?i:nccl).{0,80}(?i:timed out)|(?i:nccl (operation|watchdog|communicator|error)).{0,80}(?i:timeout after)|Some NCCL operations have failed or timed out|due to ProcessGroupNCCL watchdog hang",
        ),
        pattern(
            "nccl_error",
            "NCCL reports an error",
            Error,
            false,
            "Run with NCCL_DEBUG=INFO; a remote process that exited, a link or a network device are usual causes",
            r"ncclSystemError|ncclInternalError|ncclRemoteError|ncclUnhandledCudaError|ncclInvalidUsage|(N|R)CCL [Ee]rror( in|:| at|,| [0-9])",
        ),
        pattern("nccl_warning", "NCCL warning", Warning, true, "See the lines around it", r"(N|R)CCL WARN"),
        pattern(
            "xid",
            "the driver reports an Xid",
            Error,
            false,
            "The number states whether the program or the GPU is the likely cause",
            r"NVRM: Xid",
        ),
        pattern(
            "cuda_error",
            "CUDA reports an error",
            Error,
            true,
            "Run with CUDA_LAUNCH_BLOCKING=1 to find the kernel; restart from the last checkpoint",
            r#"CUDA error: |cudaError[A-Z]\w+([\s:;,)"'\]]|$)|(?-u:\b)CUDA_ERROR_(OUT_OF|ILLEGAL|MISALIGNED|LAUNCH|NO_|NOT_|INVALID|ECC|UNKNOWN|ASSERT|HARDWARE|SYSTEM|NVLINK|DEINIT|STREAM|UNSUPPORTED|PEER|CONTEXT)|GPUassert: |CUDA Runtime Error|an illegal memory access was encountered|CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)|device-side assert triggered|CUDA driver version is insufficient|no CUDA-capable device is detected|^@\[?CUDA (ERROR|Error)|Memory access fault by GPU|HW Exception by GPU|: GPU is lost"#,
        ),
        pattern(
            "nan_loss",
            "the loss is not a number",
            Error,
            false,
            "Stop the job: all further steps are wasted. Restart from an earlier checkpoint with a lower learning rate or clipped gradients",
            // Without a separator, a word after it would make it a sentence: `loss NaN check enabled`.
            r#"(?i)(^|[^a-z_])([a-z0-9]+_)*loss(_[a-z0-9]+)*(['"]?(\s+is|\s*[:=])\s*['"]?(tensor\()?[-+]?(nan|inf(inity)?)([^\w-]|$)|\s+[-+]?(nan|inf)(\s*[,;|)\]}]|\s*$|\s+\(|\s{2,}|\s+\S+\s+[-+]?[0-9.(]))|'loss': 0\.0, 'grad_norm': nan"#,
        ),
        pattern(
            "no_space",
            "a file system is full",
            Error,
            false,
            "Delete what is not needed, or write to another file system",
            r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]|: Wrote only [0-9]+ of [0-9]+ bytes",
        ),
        pattern(
            "file_system_error",
            "a file system reports an error",
            Error,
            false,
            "Check the path in the line on that node; if others see the same, tell the administrators",
            // Python also reports sockets by the numbers 107 and 108, then without a path.
            r#"Stale file handle|\[Errno (5|116|121)\]|\[Errno 10[78]\] [^:]*: ['"/]|Input/output error|/\S*: Transport endpoint is not connected|: Cannot (read|write|open): Cannot send after|Remote I/O error"#,
        ),
        pattern(
            "read_only_file_system",
            "a file system is read-only",
            Error,
            true,
            "Write to another file system; one that became read-only on a node has failed there",
            r"\[Errno 30\]|: Read-only file system",
        ),
        pattern(
            "shared_memory_full",
            "shared memory is full",
            Error,
            false,
            "Use fewer data loader workers or smaller batches, or ask for a larger /dev/shm",
            r"insufficient shared memory \(shm\)|DataLoader worker \(pid.{0,40}killed by signal: Bus error",
        ),
        pattern(
            "killed",
            "the kernel killed a process: out of memory",
            Error,
            false,
            "Request more memory (--mem), or use fewer data loader workers",
            r"(?i:(invoked|by( the)?( linux)?) oom[-_ ]killer|been oom[- ]killed)|cgroup out-of-memory handler|slurmstepd: error: Exceeded (step|job) memory limit|(?i:out of memory): Killed process|oom-kill:constraint=|Detected [1-9]\d* oom|DataLoader worker \(pid.{0,40}killed by signal: Killed|srun: error: .*: tasks? .*: Out Of Memory",
        ),
        pattern(
            "no_memory",
            "a program could not allocate memory",
            Error,
            true,
            "Request more memory (--mem), or process less at once",
            r"java\.lang\.OutOfMemoryError|std::bad_alloc|Cannot allocate memory|ArrayMemoryError: Unable to allocate|^~MemoryError(:|$)|cannot allocate vector of size|insufficient virtual memory",
        ),
        pattern(
            "ray_worker_killed",
            "Ray lost workers",
            Error,
            false,
            "Use fewer tasks per node, or request more memory (--mem); Ray's log of the node states the cause",
            r"A worker died or was killed while executing a task|(?-u:\b)[1-9][0-9]* Workers \(tasks / actors\) killed due to memory pressure|ray\.exceptions\.(Actor|Worker|Node|OutOfMemory|RayActor)\w*(Error|Died)",
        ),
        pattern(
            "node_failure",
            "a node failed",
            Error,
            false,
            "Restart from the last checkpoint without that node (--exclude), and tell the administrators",
            r"srun: error: Node failure on|(PRTE|ORTE) has lost communication with a remote daemon|CANCELLED AT .* DUE TO NODE FAILURE",
        ),
        pattern(
            "segmentation_fault",
            "a process crashed",
            Error,
            false,
            "A native library crashed: run with PYTHONFAULTHANDLER=1, and check that its versions match",
            r"(^~|[0-9:(*]\s*)Segmentation fault|: segfault at [0-9a-f]+ ip |(^~|[0-9:]\s+)[A-Z][a-z ]{3,30}\(core dumped\)(\s|$)|(?i:(killed by|received|caught|fatal|got) signal)[: ]+(SIGSEGV|SIGBUS|11|7)(?-u:\b)|Signal: [A-Z][a-z ]+ \([0-9]+\)|^~(Bus error|Illegal instruction|Floating point exception|Aborted)$|Fatal Python error|fatal error has been detected by the Java Runtime|signal \(?(4|6|7|8|11)(\.[0-9]+)?\)?( \([0-9-]+\))?: (Segmentation fault|Aborted|Bus error|Illegal instruction|Floating|Arithmetic)|srun: error: .*: tasks? .*: (Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)|Program received signal SIG(SEGV|BUS|ABRT|FPE|ILL)",
        ),
        pattern(
            "traceback",
            "its log ends with a Python traceback",
            Error,
            true,
            "See the lines before it; if the other ranks wait, end the job",
            r"Traceback \(most recent call last\):?[\s─╮]*$",
        ),
        pattern(
            "mpi_abort",
            "MPI ended all ranks, because one failed",
            Error,
            true,
            "The output of the rank in the line, before it, states why",
            r"MPI_ABORT was invoked|\*\*\* An error occurred in MPI_|MPI_Abort\(|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES|(mpirun|prterun|mpiexec) (noticed|has exited|detected) |Fatal error in (internal_|P?MPI_)",
        ),
        pattern(
            "aborted",
            "a program aborted",
            Error,
            true,
            "The line states the check that failed; a debug build, or a memory checker, finds its cause",
            r#"terminate called (after throwing|without an active exception|recursively)|libc\+\+abi: terminating|double free or corruption|(free\(\)|munmap_chunk\(\)): invalid|malloc\(\): (invalid|corrupted|unaligned|memory)|corrupted size vs\. prev_size|stack smashing detected|Assertion [`'"].*failed|pure virtual method called"#,
        ),
        pattern(
            "fortran_error",
            "a Fortran program stopped with an error",
            Error,
            true,
            "Build with -g -traceback (ifort) or -g -fbacktrace (gfortran) to find the line",
            r"forrtl: (severe|error)|Fortran runtime error|^~ERROR STOP",
        ),
        pattern(
            "exception",
            "its log ends with an exception",
            Error,
            true,
            "See the lines around it",
            r#"Exception in thread "|^~ERROR: LoadError: |^~ERROR: [A-Z][A-Za-z]+(Error|Exception|Mismatch)(?-u:\b)|^~thread '.*' (\([0-9]+\) )?panicked at|^~panic: |^~Execution halted|^Error using \w|^@([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception)(: \S|$)"#,
        ),
        pattern(
            "fatal_error",
            "a program stopped with an error",
            Error,
            true,
            "See the lines around it",
            r"^~\s*(Fatal error:|(--> FOAM )?FATAL (IO )?ERROR:|FATAL: +[a-z]|ERROR( on proc [0-9]+)?: .*\(\S*[a-z]\.cpp:[0-9]+\)|ERROR: Lost atoms|Error termination (via|request)|Error in routine \w+ \([0-9]+\)|A USER ERROR has occurred)|^\s*\*\s+\[ABORT\]|I REFUSE TO CONTINUE WITH THIS SICK JOB|VERY BAD NEWS! internal error|finished by error termination|^rsync error: |^tar: Error is not recoverable|^make(\[[0-9]+\])?: \*\*\* .* Error [0-9]+$|Divergence detected in AMG solver|FATAL CALLED FROM FILE|exited with errors$|E r r o r   t e r m i n a t i o n|ARMCI DASSERT fail",
        ),
        pattern(
            "rank_failed",
            "a rank failed, as its launcher reports",
            Error,
            true,
            "The log of that rank, before this, states why; SIGKILL is mostly the kernel's, for lack of memory",
            r"ChildFailedError|traceback : Signal [0-9]+ \(SIG[A-Z]+\) received|failed \(exitcode: -?[0-9]+\) local_rank|exits with return code = -?[1-9]",
        ),
        pattern(
            "driver_mismatch",
            "the versions of the NVIDIA driver and its library differ",
            Error,
            false,
            "The driver was updated while the node ran: it needs a reboot. Use another node (--exclude), and tell the administrators",
            r"Driver/library version mismatch",
        ),
        pattern(
            "launch_failed",
            "a program could not be started",
            Error,
            true,
            "Check the modules, the container and the paths of the batch script, and that they exist on every node",
            r"error while loading shared libraries: |: version `\S+' not found \(required by|srun: (fatal: |error: (.*launch.* failed|Unable to (create step|allocate|confirm)))|(ORTE|PRTE|mpirun|mpiexec) was unable to |There are not enough slots available|slurmstepd: error: (execve\(\)|spank: required plugin|pyxis: (failed|couldn't))|^~Can't locate \S+ in @INC|: can't open file '.*': \[Errno 2\]",
        ),
        pattern(
            "workflow_error",
            "a step of a workflow failed",
            Error,
            true,
            "The log of that step states why",
            r"^~Error in rule |^~WorkflowError|Error executing process >|^ERROR ~ |Exiting because a job execution failed",
        ),
        pattern(
            "terminated",
            "a process was terminated",
            Warning,
            true,
            "See who ended it: the batch script, a time limit, or a person",
            r"^([0-9]+:\s)?(\S+: line \d+:\s+\d+ )?(Killed|Terminated)(\s{2,}|$)|SIGTERM handler called|srun: error: .*: tasks? .*: (Killed|Terminated|Exited)|\*\*\* (JOB|STEP) \S+ ON \S+ CANCELLED (AT|DUE TO) ",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(line: &str) -> Option<String> {
        LogPatterns::new(&[]).find(line).map(|pattern| pattern.name.to_string())
    }

    #[test]
    fn messages_of_frameworks_are_recognized() {
        for (line, name) in [
            (
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                "cuda_out_of_memory",
            ),
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying",
                "cuda_out_of_memory",
            ),
            (
                "[rank3]:[E1126 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812",
                "nccl_timeout",
            ),
            (
                "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1275, remote process exited",
                "nccl_error",
            ),
            ("gpu-01:123:456 [0] NCCL WARN Missing \"iommu=pt\"", "nccl_warning"),
            ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "xid"),
            // TensorFlow tries again with less; it matters at the end of the log.
            (
                "failed to allocate 10.7G (11489312768 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY",
                "cuda_error",
            ),
            ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error"),
            ("{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-4}", "nan_loss"),
            ("step 1200 | train_loss=NaN | lr 3e-4", "nan_loss"),
            ("Loss is nan, stopping training", "nan_loss"),
            ("step 250: train loss nan, val loss nan", "nan_loss"),
            ("iter 250: loss nan, time 33.20ms", "nan_loss"),
            ("Epoch: [0][ 10/5005]\tLoss nan (nan)\tAcc@1 0.00", "nan_loss"),
            ("{'mlm_loss': nan, 'lr': 1e-4}", "nan_loss"),
            ("loss_cls: nan loss_bbox: nan", "nan_loss"),
            ("epoch 3 loss: tensor(nan, device='cuda:0')", "nan_loss"),
            ("OSError: [Errno 28] No space left on device: '/scratch/ckpt.pt'", "no_space"),
            ("slurmstepd: error: Detected 1 oom_kill event in StepId=17.batch.", "killed"),
            ("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.", "killed"),
            (
                "/var/spool/slurmd/job17/slurm_script: line 4: 881 Segmentation fault (core dumped) ./a",
                "segmentation_fault",
            ),
            ("[rank0]: Traceback (most recent call last):", "traceback"),
            (
                "/var/spool/slurmd/job17/slurm_script: line 9:  4711 Killed                  python train.py",
                "terminated",
            ),
            ("srun: error: gpu-01: task 3: Killed", "terminated"),
            ("ERROR: Out of GPU memory trying to allocate 8.000 GiB", "cuda_out_of_memory"),
            ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8 bytes", "cuda_out_of_memory"),
            ("Rank 2] Terminating the process, due to ProcessGroupNCCL watchdog hang.", "nccl_timeout"),
            ("GPUassert: out of memory src/main.cu 123", "cuda_error"),
            ("cudaMemcpy failed an illegal memory access was encountered", "cuda_error"),
            ("Memory cgroup out of memory: Killed process 4123 (python) total-vm:4kB", "killed"),
            ("Memory access fault by GPU node-4 (Agent handle: 0x55d0) on address 0x7f12.", "cuda_error"),
            ("Error: cannot allocate vector of size 12.3 Gb", "no_memory"),
            ("[gn01:4123] Signal: Floating point exception (8)", "segmentation_fault"),
            ("make: *** [Makefile:4: all] Error 2", "fatal_error"),
            (
                "srun: error: Unable to create step for job 17: Memory required is not available",
                "launch_failed",
            ),
            ("ERROR ~ No such variable: params.x", "workflow_error"),
            ("tar: a.bin: Wrote only 4096 of 10240 bytes", "no_space"),
            ("PRTE has lost communication with a remote daemon.", "node_failure"),
            ("python[4123]: segfault at 10 ip 00007f1 sp 00007f2 error 4", "segmentation_fault"),
            ("[gn01:4123:0:4123] Caught signal 11 (Segmentation fault: address", "segmentation_fault"),
            ("[gn01:4123] *** An error occurred in MPI_Recv", "mpi_abort"),
            ("--> FOAM FATAL ERROR: (openfoam-2312)", "fatal_error"),
            (
                "ERROR on proc 3: Bond atoms 12 13 missing at step 9 (src/ntopo_bond_all.cpp:60)",
                "fatal_error",
            ),
            ("     Error in routine cdiaghg (159):", "fatal_error"),
            (" * [ABORT]                                              *", "fatal_error"),
            ("|    I REFUSE TO CONTINUE WITH THIS SICK JOB ... BYE!!!  |", "fatal_error"),
            ("[ERROR] [launch.py:325] ['python', 'train.py'] exits with return code = -9", "rank_failed"),
            ("api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 4123) of binary: python", "rank_failed"),
            ("./sim: error while loading shared libraries: libcudart.so.12: cannot open", "launch_failed"),
            ("./sim: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./sim)", "launch_failed"),
            ("slurmstepd: error: pyxis: failed to import docker image", "launch_failed"),
            ("slurmstepd: error: *** STEP 17.0 ON gn01 CANCELLED AT 2026-11-26T10:00:00 ***", "terminated"),
            ("PermissionError: [Errno 13] Permission denied: '/scratch/ckpt.pt'", "exception"),
            ("[rank3]: AssertionError", "exception"),
        ] {
            assert_eq!(name_of(line).as_deref(), Some(name), "{line}");
        }
    }

    #[test]
    fn similar_lines_of_healthy_jobs_are_not() {
        for line in [
            "Using loss: nan-safe cross entropy",
            "slurm epilog: Detected 0 oom_kill events",
            "step 1200 | loss=2.31 | nan_to_num enabled",
            "loss: 0.314 (inference took 3 ms)",
            "loss: information criterion",
            "check for nan in loss: False",
            "Killed it! 99 % accuracy",
            "NCCL INFO Channel 00/32 : 0 1 2 3",
            "NCCL version 2.21.5+cuda12.4, timeout 1800 s",
            "max memory allocated: 71.2 GiB, no out of memory so far",
            "WARNING: the traceback module is imported twice",
            "terminated early stopping: False",
            "Downloading shards: 100%|##########| 8/8",
            "gpu-01:1:9 [0] NCCL INFO socketPollConnect: connect returned Connection timed out, retrying (1/34)",
            "best_val_loss: inf, patience 3",
            "min_loss=inf",
            "Best val loss: inf, patience 3",
            "initial best loss = inf",
            "epoch 3 signal: 7.25 dB",
            "signal 11 of 64 processed",
            "oom_kill 0",
            "the room killed the mood",
            "ProcessGroupNCCL options: timeout after 1800000 ms",
            "loss NaN check enabled",
            "[2026-11-26 10:00:00] ConnectionError: retrying in 3 s",
            "L1Error: 0.3",
            "Found CUDA_ERROR_LIST header, cudaErrorNames[] loaded",
            "make[1]: warning:  Clock skew detected.  Your build may be incomplete.",
            "val_loss improved from inf to 0.51231, saving model",
            "tests/test_io.py::test_segmentation_fault PASSED [ 20%]",
            "UCX_ERROR_SIGNALS=SIGILL,SIGSEGV,SIGBUS,SIGFPE",
            "",
        ] {
            assert_eq!(name_of(line), None, "{line}");
        }
    }

    #[test]
    fn settings_add_patterns_and_invalid_ones_are_refused() {
        let custom = CustomPattern::parse("loss_spike=loss: [0-9]{4,}").unwrap();
        assert_eq!(custom.to_string(), "loss_spike=loss: [0-9]{4,}");
        let patterns = LogPatterns::new(&[custom]);
        assert_eq!(patterns.find("loss: 12345").unwrap().name.as_str(), "loss_spike");
        for raw in [
            "x",
            "x=",
            "=y",
            "Name=y",
            "a b=y",
            "x=(",
            "x=.*",
            "traceback=y",
            "x=(((a{1,500}){1,500}){1,500})",
        ] {
            assert!(CustomPattern::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn the_line_of_an_exception_is_recognized() {
        assert!(is_exception("RuntimeError: shapes do not match"));
        assert!(is_exception("[rank0]: torch.distributed.DistBackendError: x"));
        assert!(is_exception("KeyboardInterrupt"));
        assert!(is_exception("(Worker pid=12) [rank0]: ValueError: x"));
        assert!(is_finite_again("{'loss': 0.31}", "{'loss': nan}"));
        assert!(!is_finite_again("{'loss': nan}", "{'loss': nan}"));
        assert!(!is_finite_again("best val_loss: 0.412 (epoch 0)", "step loss: nan"));
        assert!(is_finite_again("step 8 loss 2.31", "step 7 loss nan  lr 1e-4"));
        assert!(!is_exception("  File \"train.py\", line 3, in <module>"));
    }
}
