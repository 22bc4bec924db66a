//! Names of the fuzz targets; each corpus is the folder of that name.

/// A target's name, and folders of the workspace whose files are seeds for it besides its corpus.
pub type Name = (&'static str, &'static [&'static str]);

const FROZEN: &[&str] = &["protocol/tests/frozen/v2"];

/// Every target.
pub const NAMES: [Name; 16] = [
    ("page-to-relay", FROZEN),
    ("relay-to-page", FROZEN),
    ("relay-to-page-for-long", &[]),
    ("probe-to-relay", FROZEN),
    ("squeue", &["relay/slurm/tests/22.05", "relay/slurm/tests/26.05/recorded"]),
    (
        "scontrol",
        &[
            "relay/slurm/tests/20.02",
            "relay/slurm/tests/22.05",
            "relay/slurm/tests/26.05",
            "relay/slurm/tests/26.05/recorded",
        ],
    ),
    ("slurm-words", &[]),
    ("known-hosts", &[]),
    ("ssh-config", &[]),
    ("http", &[]),
    ("log", &[]),
    ("names", &[]),
    ("recording", &[]),
    ("history-segment", &[]),
    ("job-record", &[]),
    ("database", &[]),
];
