//! Detects the application of a job from the commands of its processes.

use nodeglass_protocol::picture::ProcessFacts;

/// The sign by which a process is recognized.
enum Sign {
    /// The name of its program begins so.
    Program(&'static str),
    /// A word of its command line is so; words end at spaces and at `/.=:,`.
    Word(&'static str),
}
use Sign::{Program, Word};

/// Applications, the most specific first: of several, a job's is the first one.
const APPLICATIONS: [(&str, &[Sign]); 22] = [
    ("vLLM", &[Word("vllm"), Program("VLLM::")]),
    ("SGLang", &[Word("sglang")]),
    ("Megatron-LM", &[Word("megatron"), Word("pretrain_gpt")]),
    ("DeepSpeed", &[Word("deepspeed")]),
    ("GROMACS", &[Program("gmx"), Program("mdrun")]),
    ("LAMMPS", &[Program("lmp")]),
    ("NAMD", &[Program("namd")]),
    ("AMBER", &[Program("pmemd"), Program("sander")]),
    ("OpenMM", &[Word("openmm")]),
    ("VASP", &[Program("vasp")]),
    ("CP2K", &[Program("cp2k")]),
    ("Quantum ESPRESSO", &[Program("pw.x"), Program("ph.x")]),
    ("NWChem", &[Program("nwchem")]),
    ("RELION", &[Program("relion")]),
    ("llama.cpp", &[Program("llama-"), Program("ollama")]),
    ("JAX", &[Word("jax"), Word("maxtext")]),
    ("TensorFlow", &[Word("tensorflow"), Word("tf_cnn_benchmarks")]),
    (
        "PyTorch",
        &[
            Word("torch"),
            Word("torchrun"),
            Word("pytorch"),
            Word("accelerate"),
            Program("pt_main"),
            Program("pt_"),
        ],
    ),
    ("Julia", &[Program("julia")]),
    ("MATLAB", &[Program("MATLAB"), Program("matlab")]),
    ("R", &[Word("Rscript")]),
    ("Python", &[Program("python"), Program("ipykernel")]),
];

/// The known name of an application that was stored.
pub(super) fn known(name: &str) -> Option<&'static str> {
    APPLICATIONS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// The more specific of what is known and what the process is.
pub(super) fn better(known: Option<&'static str>, process: &ProcessFacts) -> Option<&'static str> {
    let command = process.command.value().map_or("", |text| text.as_str());
    let args = process.args.value().map_or("", |text| text.as_str());
    let first = args.split_whitespace().next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let is = |sign: &Sign| match sign {
        Program(name) => command.starts_with(name) || first.starts_with(name),
        Word(word) => {
            args.split([' ', '/', '.', '=', ':', ',']).any(|part| part == *word) || command == *word
        }
    };
    let names = APPLICATIONS.iter().take_while(|(name, _)| known != Some(name));
    let found = names.filter(|(_, signs)| signs.iter().any(is)).map(|(name, _)| *name).next();
    found.or(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::process::ProcessKind;
    use nodeglass_protocol::{GpuUuid, Reading};

    fn detected(command: &str, args: &str) -> Option<&'static str> {
        let facts = ProcessFacts::new(GpuUuid::new("GPU-1"), 1, ProcessKind::default());
        let (command, args) = (Reading::Value(command.into()), Reading::Value(args.into()));
        better(None, &ProcessFacts { command, args, ..facts })
    }

    #[test]
    fn applications_are_detected_from_their_commands() {
        assert_eq!(detected("gmx_mpi", "/opt/gromacs/bin/gmx_mpi mdrun -deffnm md"), Some("GROMACS"));
        assert_eq!(detected("python3", "python3 -m torch.distributed.run train.py"), Some("PyTorch"));
        assert_eq!(detected("pt_main_thread", ""), Some("PyTorch"));
        assert_eq!(detected("python", "python -m vllm.entrypoints.api_server"), Some("vLLM"));
        assert_eq!(detected("python", "python train.py --torchy"), Some("Python"));
        assert_eq!(detected("lmp", "lmp -in in.lj"), Some("LAMMPS"));
        assert_eq!(detected("a.out", "./a.out --gmxfile x"), None);
    }

    #[test]
    fn the_most_specific_application_of_a_job_stays() {
        let facts = ProcessFacts::new(GpuUuid::new("GPU-1"), 1, ProcessKind::default());
        let python = ProcessFacts { command: Reading::Value("python".into()), ..facts };
        assert_eq!(better(Some("vLLM"), &python), Some("vLLM"));
        assert_eq!(better(None, &python), Some("Python"));
    }
}
