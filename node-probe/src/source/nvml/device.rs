//! What NVML enumerates: GPUs, their MIG instances, and those it lost before they told their names.

use super::word;
use crate::source::calls::Calls;
use nodeglass_protocol::{GpuUuid, Text};
use nvml_wrapper::{Device, Nvml};

/// One row of the inventory.
pub struct Seat<'nvml> {
    /// Who it is.
    pub uuid: GpuUuid,
    /// Whether it said so itself just now; a lost GPU does not.
    pub answers: bool,
    /// NVML index; an instance has that of its GPU.
    pub index: u32,
    /// The handle, or why there is none.
    pub device: Result<Device<'nvml>, Text>,
    /// For an instance: its GPU, and its ids there.
    pub mig: Option<Instance>,
    /// Whether it is a GPU that is divided into instances; `None` if it does not know that mode.
    pub divided: Option<bool>,
}

/// A MIG instance's place.
pub struct Instance {
    /// Its GPU.
    pub parent: GpuUuid,
    /// GPU instance id and compute instance id, by which process lists name it.
    pub ids: Option<(u32, u32)>,
}

/// Every GPU in NVML's order, each followed by its instances. One that must not be called keeps the rows that it had.
pub fn enumerate<'nvml>(nvml: &'nvml Nvml, calls: &Calls) -> Vec<Seat<'nvml>> {
    let mut seats = Vec::new();
    for index in 0..nvml.device_count().unwrap_or(0) {
        if let Some(why) = calls.avoided(index) {
            seats.extend(avoided(index, &why, calls));
            continue;
        }
        calls.enter_gpu(index);
        let seat = gpu(nvml, index);
        let instances = seat.device.as_ref().map(|device| instances(&seat, device)).unwrap_or_default();
        seats.push(seat);
        seats.extend(instances);
    }
    seats
}

/// The rows of a GPU that must not be called.
fn avoided<'nvml>(index: u32, why: &Text, calls: &Calls) -> Vec<Seat<'nvml>> {
    let seat = |uuid: GpuUuid, mig| Seat {
        uuid,
        answers: false,
        index,
        device: Err(why.clone()),
        mig,
        divided: None,
    };
    let known = calls.known().map(|known| known.gpus.as_slice()).unwrap_or_default();
    let rows = known.iter().filter(|facts| facts.index == index).map(|facts| {
        let ids = facts.mig.as_ref().map(|mig| (mig.gpu_instance, mig.compute_instance));
        let mig = facts.mig_parent.clone().map(|parent| Instance { parent, ids });
        seat(facts.uuid.clone(), mig)
    });
    let rows: Vec<_> = rows.collect();
    // It hung before it told who it is.
    if rows.is_empty() { vec![seat(lost(index), None)] } else { rows }
}

/// How a GPU is called that never told who it is.
fn lost(index: u32) -> GpuUuid {
    GpuUuid::new(format!("LOST-{index}"))
}

fn gpu(nvml: &Nvml, index: u32) -> Seat<'_> {
    let lost = || lost(index);
    match nvml.device_by_index(index) {
        Ok(device) => {
            let uuid = device.uuid();
            let answers = uuid.is_ok();
            Seat {
                uuid: uuid.map_or_else(|_| lost(), GpuUuid::new),
                answers,
                index,
                divided: divided(&device),
                device: Ok(device),
                mig: None,
            }
        }
        Err(error) => Seat {
            uuid: lost(),
            answers: false,
            index,
            device: Err(word::of(&error)),
            mig: None,
            divided: None,
        },
    }
}

fn divided(gpu: &Device<'_>) -> Option<bool> {
    gpu.mig_mode().ok().map(|mode| mode.current == 1)
}

fn instances<'nvml>(parent: &Seat<'_>, gpu: &Device<'nvml>) -> Vec<Seat<'nvml>> {
    // The count is the most there can be; the real ones come first, then NotFound.
    let most = if parent.divided == Some(true) { gpu.mig_device_count().unwrap_or(0) } else { 0 };
    (0..most)
        .map_while(|position| gpu.mig_device_by_index(position).ok())
        .enumerate()
        .map(|(position, device)| instance(parent, position, device))
        .collect()
}

fn instance<'nvml>(parent: &Seat<'_>, position: usize, device: Device<'nvml>) -> Seat<'nvml> {
    let uuid = device
        .uuid()
        .map_or_else(|_| GpuUuid::new(format!("{}/mig-{position}", parent.uuid.as_str())), GpuUuid::new);
    let ids = super::legacy::instance_ids(&device);
    let mig = Some(Instance { parent: parent.uuid.clone(), ids });
    Seat { uuid, answers: true, index: parent.index, device: Ok(device), mig, divided: None }
}
