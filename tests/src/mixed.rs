//! A node with accelerators of three vendors, all of them stand-ins.

use anyhow::{Context, Result};
use fake_nvml::{install, state::State};
use fake_tpuinfo::Device;
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Attributes of an AMD GPU in sysfs.
const MI210: &[(&str, &str)] = &[
    ("vendor", "0x1002"),
    ("device", "0x740f"),
    ("class", "0x038000"),
    ("unique_id", "27d8e2b1c0a4f5e6"),
    ("product_name", "AMD INSTINCT MI210"),
    ("gpu_busy_percent", "97"),
    ("mem_info_vram_used", "34359738368"),
    ("mem_info_vram_total", "68702699520"),
    ("pp_dpm_sclk", "0: 500Mhz\n1: 1700Mhz *"),
    ("power/runtime_status", "active"),
    ("hwmon/hwmon4/name", "amdgpu"),
    ("hwmon/hwmon4/temp1_label", "edge"),
    ("hwmon/hwmon4/temp1_input", "54000"),
    ("hwmon/hwmon4/power1_average", "241000000"),
    ("hwmon/hwmon4/power1_cap", "300000000"),
];

/// The libraries and the tree of `/sys` of the node.
#[derive(Debug)]
pub struct MixedNode(TempDir);

impl MixedNode {
    /// Number of accelerators: one of NVIDIA, one of AMD, and two TPUs.
    pub const GPUS: usize = 4;

    /// Creates the node.
    ///
    /// # Errors
    /// If a library is not built, or the files cannot be written.
    pub fn new() -> Result<Self> {
        let node = Self(tempfile::tempdir()?);
        install::install(&node.path("lib")).context("install the stand-in driver")?;
        let library = fake_tpuinfo::library().context("find the stand-in of libtpuinfo")?;
        fs::copy(library, node.path("lib/libtpuinfo.so"))?;
        let nvidia = json!({"gpus": [{"uuid": "GPU-1", "name": "NVIDIA A40", "util": 55}]});
        let nvidia: State = serde_json::from_value(nvidia)?;
        install::write_state(&node.path("nvml.json"), &nvidia)?;
        let tpu = |id, duty| Device { id, used: (id + 6) << 30, total: 16 << 30, duty: Some(duty) };
        let tpus = fake_tpuinfo::State { devices: vec![tpu(0, 40.0), tpu(1, 60.0)], ..Default::default() };
        fs::write(node.path("tpuinfo.json"), serde_json::to_vec(&tpus)?)?;
        node.add_amd()?;
        [0, 1].into_iter().try_for_each(|number| node.add_tpu(number))?;
        Ok(node)
    }

    /// The environment of a relay that runs on this node.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_LIBRARY_PATH", self.path("lib").into()),
            ("FAKE_NVML_STATE", self.path("nvml.json").into()),
            ("FAKE_TPUINFO", self.path("tpuinfo.json").into()),
            ("NODE_PROBE_SYSROOT", self.0.path().into()),
        ]
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn add_amd(&self) -> Result<()> {
        let device = "sys/devices/pci0000:00/0000:c3:00.0";
        for (name, content) in MI210 {
            self.file(&format!("{device}/{name}"), content)?;
        }
        self.file(&format!("{device}/drm/card1/dev"), "226:1")?;
        self.file(&format!("{device}/drm/renderD129/dev"), "226:129")?;
        self.link(&format!("{device}/drm/card1/device"), "../..")?;
        self.link(&format!("{device}/driver"), "../../../bus/pci/drivers/amdgpu")?;
        self.link("sys/class/drm/card1", &format!("../../../{device}/drm/card1"))
    }

    fn add_tpu(&self, number: u32) -> Result<()> {
        let device = format!("sys/devices/pci0000:00/0000:00:0{}.0", 4 + number);
        for (name, content) in [("vendor", "0x1ae0"), ("device", "0x0063"), ("class", "0x120000")] {
            self.file(&format!("{device}/{name}"), content)?;
        }
        self.link(
            &format!("sys/bus/pci/devices/0000:00:0{}.0", 4 + number),
            &format!("../../../../{device}"),
        )?;
        self.link(&format!("sys/class/accel/accel{number}/device"), &format!("../../../../{device}"))
    }

    fn file(&self, path: &str, content: &str) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&path, format!("{content}\n")).with_context(|| format!("write {}", path.display()))
    }

    fn link(&self, path: &str, target: &str) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        symlink(target, &path).with_context(|| format!("link {}", path.display()))
    }
}
