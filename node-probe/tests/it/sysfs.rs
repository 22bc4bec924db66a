//! Trees of `/sys` and `/proc` as the kernel shows them for GPUs of AMD and Intel.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use crate::harness::probe;
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

/// Folder of the PCI devices of a tree.
const BUS: &str = "sys/devices/pci0000:00/0000:00:01.1";

/// A tree, removed on drop.
pub struct Tree(TempDir);

impl Tree {
    /// A machine without GPUs.
    pub fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.file("sys/class/drm/version", "drm 1.1.0 20060810\n");
        tree.file("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        tree
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with its folders, in place and with one call: a probe keeps attributes open, and the
    /// kernel never shows a part of one.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (path, content) = (self.root().join(path), content.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::options().write(true).create(true).truncate(false).open(&path).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.set_len(content.len() as u64).unwrap();
        path
    }

    /// Creates a symbolic link, with its folders.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Adds a GPU with its connectors and attributes.
    pub fn card(&self, number: u32, pci: &str, driver: &str, attributes: &[(&str, &str)]) {
        let device = format!("{BUS}/{pci}");
        let folder = format!("{device}/drm/card{number}");
        self.file(&format!("{folder}/dev"), format!("226:{number}\n"));
        self.link(&format!("{folder}/device"), "../..");
        self.file(&format!("{device}/drm/renderD{}/dev", 128 + number), format!("226:{}\n", 128 + number));
        self.link(&format!("{device}/driver"), &format!("../../../../bus/pci/drivers/{driver}"));
        self.link(&format!("sys/class/drm/card{number}"), &format!("../../../{folder}"));
        let connector = format!("sys/class/drm/card{number}-DP-1");
        self.file(&format!("{connector}/status"), "disconnected\n");
        self.link(&format!("{connector}/device"), &format!("../card{number}"));
        self.attributes(pci, attributes);
    }

    /// Writes attributes of a GPU's device. Numbers are filled up to one length, so that a new one never
    /// ends with digits of an old one.
    pub fn attributes(&self, pci: &str, attributes: &[(&str, &str)]) {
        let written = |content: &str| format!("{content:\n<24}\n");
        attributes.iter().for_each(|(name, content)| _ = self.attribute(pci, name, written(content)));
    }

    /// Writes one attribute.
    pub fn attribute(&self, pci: &str, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.file(&format!("{BUS}/{pci}/{name}"), content)
    }

    /// Path of an attribute.
    pub fn path(&self, pci: &str, name: &str) -> PathBuf {
        self.root().join(BUS).join(pci).join(name)
    }

    /// Lets a process open a device file, of which the driver says this.
    pub fn open_file(&self, pid: u32, descriptor: u32, target: &str, fdinfo: &str) {
        self.link(&format!("proc/{pid}/fd/{descriptor}"), target);
        self.file(&format!("proc/{pid}/fdinfo/{descriptor}"), fdinfo);
    }

    /// The probe's command on this machine, without an NVIDIA driver.
    pub fn command(&self) -> Command {
        let mut command = probe();
        command.arg("--sysroot").arg(self.root()).args(["--nvml", "/nonexistent/libnvidia-ml.so.1"]);
        command
    }

    /// Runs `--once --json`.
    pub fn once(&self) -> Output {
        self.command().args(["--once", "--json"]).output().unwrap()
    }

    /// The report of `--once`.
    pub fn report(&self) -> Value {
        let output = self.once();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
        })
    }
}

/// A table of `gpu_metrics` in which nothing is reported but these words.
pub fn gpu_metrics(size: usize, format: u8, content: u8, words: &[(usize, u64, usize)]) -> Vec<u8> {
    let mut table = vec![0xff; size];
    table[..2].copy_from_slice(&u16::try_from(size).unwrap().to_le_bytes());
    (table[2], table[3]) = (format, content);
    for (offset, value, length) in words {
        table[*offset..offset + length].copy_from_slice(&value.to_le_bytes()[..*length]);
    }
    table
}
