//! Accelerators that Linux lists and no source reads are stated.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use crate::amd::mi210;
use crate::sysfs::Tree;
use serde_json::Value;

fn accelerator(tree: &Tree, number: u32, driver: &str) {
    let device = format!("sys/devices/pci0000:00/0000:00:0{number}.0");
    tree.link(&format!("{device}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
    tree.link(&format!("sys/class/accel/accel{number}/device"), &format!("../../../../{device}"));
}

pub fn pci(tree: &Tree, address: &str, class: &str, vendor: &str, driver: Option<&str>) {
    let device = format!("sys/bus/pci/devices/{address}");
    tree.file(&format!("{device}/class"), format!("{class}\n"));
    tree.file(&format!("{device}/vendor"), format!("{vendor}\n"));
    if let Some(driver) = driver {
        tree.link(&format!("{device}/driver"), &format!("../../drivers/{driver}"));
    }
}

fn reasons(tree: &Tree) -> Vec<String> {
    let report: Value = serde_json::from_slice(&tree.once().stdout).unwrap();
    let sources = report["hello"]["sources"].as_array().unwrap().iter();
    let unread = sources.filter(|source| source["vendor"] == "unknown");
    unread.map(|source| source["status"]["absent"]["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn accelerators_without_a_source_are_stated_with_their_driver() {
    let tree = Tree::new();
    accelerator(&tree, 0, "intel_vpu");
    (1..=8).for_each(|number| accelerator(&tree, number, "habanalabs"));
    tree.link("sys/class/drm/renderD128/device/driver", "../../../../bus/pci/drivers/nouveau");
    pci(&tree, "0000:41:00.0", "0x030000", "0x1002", None);
    pci(&tree, "0000:42:00.0", "0x120000", "0x1ae0", Some("vfio-pci"));
    let expected = "AMD GPU: no driver is bound to it; Google accelerator: it is passed to a virtual machine (vfio-pci); \
        8 × Intel Gaudi (habanalabs): no source reads it; Intel NPU (intel_vpu): no source reads it; \
        NVIDIA GPU (nouveau): no source reads it";
    assert_eq!(reasons(&tree), [expected]);
}

#[test]
fn displays_and_gpus_that_are_read_are_not_stated() {
    let tree = mi210();
    tree.link("sys/class/drm/renderD129/device/driver", "../../../../bus/pci/drivers/amdgpu");
    tree.link("sys/class/drm/renderD130/device/driver", "../../../../bus/virtio/drivers/virtio_gpu");
    tree.link("sys/class/drm/renderD131/device/driver", "../../../../bus/platform/drivers/amdgpu_xcp_drv");
    pci(&tree, "0000:02:00.0", "0x030000", "0x1a03", None);
    pci(&tree, "0000:c3:00.0", "0x038000", "0x1002", Some("amdgpu"));
    pci(&tree, "0000:c4:00.0", "0x020000", "0x8086", None);
    assert_eq!(reasons(&tree), Vec::<String>::new());
}
