//! Checks whether a node can run the probe: C library and processor.

use object::Endianness;
use object::elf::{EM_AARCH64, EM_PPC64, EM_RISCV, EM_X86_64, FileHeader64};
use object::read::elf::FileHeader;
use std::fmt;

/// A version of glibc, as `2.34`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(pub u32, pub u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Glibc {
    /// The last version in a text such as `glibc 2.28` or `ldd (Debian GLIBC 2.36-9) 2.36`.
    fn last_in(text: &str) -> Option<Self> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.').rev().find_map(Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some(Self(major, minor)),
            _ => None,
        }
    }
}

/// The requirements of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The newest version of glibc that it references; `None` if linked statically, or a script.
    pub glibc: Option<Glibc>,
    /// The processor as named by `uname -m`, if known here.
    pub machine: Option<&'static str>,
}

impl Needs {
    /// Reads them from the ELF header and version table; a file that is not a 64-bit ELF has no known requirements.
    pub fn of(program: &[u8]) -> Self {
        Self::read(program).unwrap_or_default()
    }

    fn read(program: &[u8]) -> object::read::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(program)?;
        let endian = header.endian()?;
        let machine = match header.e_machine.get(endian) {
            EM_X86_64 => Some("x86_64"),
            EM_AARCH64 => Some("aarch64"),
            EM_PPC64 => Some("ppc64le"),
            EM_RISCV => Some("riscv64"),
            _ => None,
        };
        let sections = header.sections(endian, program)?;
        let mut glibc = None;
        if let Some((mut files, strings)) = sections.gnu_verneed(endian, program)? {
            let strings = sections.strings(endian, program, strings)?;
            while let Some((_, mut versions)) = files.next()? {
                while let Some(version) = versions.next()? {
                    let name = String::from_utf8_lossy(version.name(endian, strings)?);
                    glibc = glibc.max(name.strip_prefix("GLIBC_").and_then(Glibc::parse));
                }
            }
        }
        Ok(Self { glibc, machine })
    }

    /// Returns why `node` cannot run the program, if it reported enough.
    pub fn unmet_by(&self, node: &str, platform: &Platform) -> Option<String> {
        if let (Some(machine), Some(theirs)) = (self.machine, platform.machine.as_deref())
            && machine != theirs
        {
            return Some(format!("{node} has {theirs} processors; this node-probe is for {machine}"));
        }
        let needed = self.glibc?;
        let known = "RHEL 9, Ubuntu 22.04, Debian 12";
        let newer = if needed == Glibc(2, 34) { format!(" ({known} or newer)") } else { String::new() };
        match platform.libc.as_ref()? {
            Libc::Glibc(theirs) if *theirs < needed => {
                Some(format!("{node} has glibc {theirs}; node-probe needs {needed} or newer{newer}"))
            }
            Libc::Glibc(_) => None,
            Libc::Musl => {
                Some(format!("{node} has musl instead of glibc; node-probe needs glibc {needed} or newer"))
            }
        }
    }
}

/// The C library of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Libc {
    Glibc(Glibc),
    Musl,
}

/// The platform that a node reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    libc: Option<Libc>,
    /// The processor, as in `uname -m`.
    pub machine: Option<String>,
}

impl Platform {
    /// The prefix of the report.
    pub const PREFIX: &str = "nodeglass-platform: ";

    /// Shell command that prints what [`Platform::parse`] reads.
    pub const COMMAND: &str = "l=$(getconf GNU_LIBC_VERSION 2>/dev/null) || l=$(ldd --version 2>&1 | head -n 1); \
        echo \"nodeglass-platform: $(uname -m) $l;\" >&2";

    /// Finds the report in a node's stderr.
    pub fn parse(stderr: &str) -> Self {
        let message = stderr.rsplit_once(Self::PREFIX).and_then(|(_, message)| message.split_once(';'));
        let message = message.map(|(message, _)| message);
        let Some((machine, libc)) = message.map(|message| message.split_once(' ').unwrap_or((message, "")))
        else {
            return Self::default();
        };
        let is_musl = libc.to_ascii_lowercase().contains("musl");
        let libc = if is_musl { Some(Libc::Musl) } else { Glibc::last_in(libc).map(Libc::Glibc) };
        let is_name = !machine.is_empty()
            && machine.len() < 20
            && machine.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        Self { libc, machine: is_name.then(|| machine.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs { glibc: Some(Glibc(2, 34)), machine: Some("x86_64") }
    }

    fn unmet(stderr: &str) -> Option<String> {
        needs().unmet_by("gpu-node-02", &Platform::parse(stderr))
    }

    #[test]
    fn a_node_that_cannot_run_the_probe_is_recognised() {
        assert_eq!(
            unmet("glibc 9.9 nodeglass-platform: x86_64 glibc 2.28; bye 2.40").unwrap(),
            "gpu-node-02 has glibc 2.28; node-probe needs 2.34 or newer (RHEL 9, Ubuntu 22.04, Debian 12 or newer)"
        );
        assert!(unmet("nodeglass-platform: x86_64 ldd (GNU libc) 2.17;").unwrap().contains("glibc 2.17;"));
        assert!(
            unmet("nodeglass-platform: x86_64 musl libc (x86_64);")
                .unwrap()
                .contains("musl instead of glibc")
        );
        let other = "gpu-node-02 has aarch64 processors; this node-probe is for x86_64";
        assert_eq!(unmet("nodeglass-platform: aarch64 glibc 2.39;").unwrap(), other);
        for fit in
            ["glibc 2.34", "ldd (Debian GLIBC 2.36-9+deb12u4) 2.36", "glibc 2.100", "", "sh: ldd: not found"]
        {
            assert_eq!(unmet(&format!("nodeglass-platform: x86_64 {fit};")), None, "{fit}");
        }
        assert_eq!(unmet("Welcome to the cluster, glibc 2.1"), None);
    }

    #[test]
    fn needs_are_those_of_this_very_program() {
        let own = Needs::of(&std::fs::read("/proc/self/exe").unwrap());
        assert_eq!(own.machine, Some(std::env::consts::ARCH));
        // Rust's standard library itself needs 2.17 or newer, and this machine runs it.
        let needed = own.glibc.unwrap();
        assert!(needed >= Glibc(2, 17) && needed <= Glibc(2, 200), "{needed}");
        assert_eq!(Needs::of(b"#!/bin/sh\n"), Needs::default());
        assert_eq!(Needs::of(&[]), Needs::default());
    }

    #[test]
    fn no_program_is_too_strange() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        for cut in [4, 16, 63, 64, 65, 4_096, program.len() / 2] {
            Needs::of(&program[..cut]);
        }
        let mut torn = program[..4_096].to_vec();
        torn[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Needs::of(&torn).glibc, None);
    }
}
