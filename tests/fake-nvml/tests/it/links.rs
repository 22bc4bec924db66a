//! NVLink, topology and affinity: connections, their kinds, and their traffic.

use crate::machine::{Machine, versioned, zeros};
use nvml_wrapper::{
    Device,
    enum_wrappers::{
        device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel},
        nv_link::{Capability, ErrorCounter},
    },
    error::NvmlError,
};
use serde_json::json;
use std::{
    thread,
    time::{Duration, Instant},
};

const ALL: u32 = u32::MAX;

#[test]
fn each_link_is_up_or_down_and_has_a_remote_end() {
    let nvlink = json!({"down": [3], "errors": [[1, 2, 3, 4, 5]]});
    let machine = Machine::new(&json!({"gpus": [{"nvlink": nvlink}, {"nvlink": null}]}));
    let gpu = machine.gpu(0);
    let up: Vec<_> = (0..12).map(|link| gpu.link_wrapper_for(link).is_active().unwrap()).collect();
    assert!(up.iter().enumerate().all(|(link, up)| *up == (link != 3)));
    assert!(matches!(gpu.link_wrapper_for(12).is_active(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.link_wrapper_for(18).is_active(), Err(NvmlError::InvalidArg)));
    let link = gpu.link_wrapper_for(0);
    assert_eq!(link.version().unwrap(), 4);
    assert!(
        link.has_capability(Capability::P2p).unwrap() && !link.has_capability(Capability::SliBridge).unwrap()
    );
    assert!(link.remote_pci_info().unwrap().bus_id.starts_with("00000000:C"), "a switch");
    assert_eq!(link.error_counter(ErrorCounter::DlReplay).unwrap(), 1);
    assert_eq!([161, 162, 163].map(|field| machine.field(&gpu, field, 0)), [Ok(1), Ok(2), Ok(7)]);
    assert_eq!([90, 91, 147].map(|field| machine.field(&gpu, field, 0)), [Ok(25_000), Ok(12), Ok(11)]);
    assert_eq!((machine.field(&gpu, 165, 0), machine.field(&gpu, 165, 3)), (Ok(1), Ok(0)));
    let none = machine.gpu(1);
    assert!(matches!(none.link_wrapper_for(0).is_active(), Err(NvmlError::NotSupported)));
    assert_eq!(machine.field(&none, 91, 0), Err(3));
}

#[test]
fn traffic_is_counted_by_link_and_for_all_of_them() {
    let nvlink =
        json!({"links": 4, "down": [3], "tx_kib_s": 3_000_000, "rx_kib_s": 0, "counted_kib": [0, 300]});
    let machine = Machine::new(&json!({"gpus": [{"card": "h100", "nvlink": nvlink}]}));
    let gpu = machine.gpu(0);
    let read = |field, link| machine.field(&gpu, field, link).unwrap() as f64;
    let (begin, one, all, raw) = (Instant::now(), read(138, 1), read(138, ALL), read(140, ALL));
    thread::sleep(Duration::from_millis(400));
    let (one, all, raw) = (read(138, 1) - one, read(138, ALL) - all, read(140, ALL) - raw);
    let wanted = 3e6 * begin.elapsed().as_secs_f64();
    assert!((all / wanted - 1.0).abs() < 0.15 && (one / (wanted / 3.0) - 1.0).abs() < 0.15, "{one} {all}");
    assert!(raw > all, "the protocol comes on top");
    assert_eq!((machine.field(&gpu, 139, 1), machine.field(&gpu, 139, ALL)), (Ok(100), Ok(300)));
    assert_eq!(machine.field(&gpu, 138, 3), Err(3), "a link that is down counts nothing");
}

#[test]
fn links_lead_to_the_other_gpus_where_there_is_no_switch() {
    let gpu = || json!({"nvlink": {"remote": "gpu"}});
    let machine = Machine::new(&json!({"gpus": [gpu(), gpu(), gpu(), gpu()]}));
    let first = machine.gpu(0);
    let peers: Vec<_> =
        (0..12).map(|link| first.link_wrapper_for(link).remote_pci_info().unwrap().bus).collect();
    assert_eq!(peers, [8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10]);
}

#[test]
fn gpu_distance_follows_from_sockets_unless_specified() {
    let machine = Machine::new(&json!({"gpus": vec![json!({}); 8]}));
    let first = machine.gpu(0);
    let far = |other| first.topology_common_ancestor(machine.gpu(other)).unwrap();
    assert_eq!(
        (far(1), far(2), far(4)),
        (TopologyLevel::Multiple, TopologyLevel::Node, TopologyLevel::System)
    );
    let near: Vec<_> = first.topology_nearest_gpus(TopologyLevel::Node).unwrap();
    assert_eq!(near.iter().map(|gpu| gpu.index().unwrap()).collect::<Vec<_>>(), [2, 3]);
    let levels = json!([[0, 10], [10, 0]]);
    let machine = Machine::new(&json!({"topology": levels, "gpus": [{}, {}]}));
    assert_eq!(machine.gpu(0).topology_common_ancestor(machine.gpu(1)).unwrap(), TopologyLevel::Single);
}

#[test]
fn peers_reach_each_other_over_nvlink_if_both_have_it() {
    let machine = Machine::new(&json!({"gpus": [{}, {}, {"nvlink": null}, {"card": "rtx3090"}]}));
    let status = |other, kind| machine.gpu(0).p2p_status(&machine.gpu(other), kind).unwrap();
    use P2pCapabilitiesIndex::{NvLink, Read};
    assert_eq!((status(1, NvLink), status(1, Read)), (P2pStatus::Ok, P2pStatus::Ok));
    assert_eq!((status(2, NvLink), status(2, Read)), (P2pStatus::NotSupported, P2pStatus::Ok));
    assert_eq!(status(3, Read), P2pStatus::ChipsetNotSupported);
}

#[test]
fn behind_a_switch_there_is_a_fabric_from_hopper_on() {
    let machine = Machine::new(&json!({"gpus": [{"card": "h100"}, {}]}));
    let fabric = |gpu: &Device<'_>, number| {
        versioned(gpu, &machine.lib().nvmlDeviceGetGpuFabricInfoV, number, zeros())
    };
    let info = fabric(&machine.gpu(0), 3).unwrap();
    assert_eq!((info.state, info.status, info.healthSummary), (3, 0, 1));
    assert_eq!(fabric(&machine.gpu(0), 9).err(), Some(25), "an unknown version");
    assert_eq!(fabric(&machine.gpu(1), 3).err(), Some(3));
}

#[test]
fn near_cpus_are_bits_of_a_set() {
    let machine = Machine::new(&json!({"gpus": [{"board": {"cpus": "0-3,64"}}, {}]}));
    assert_eq!(machine.gpu(0).cpu_affinity(2).unwrap(), [15, 1]);
    assert!(machine.gpu(1).cpu_affinity(4).unwrap().iter().any(|word| *word != 0), "this machine's own");
}
