//! What NVML enumerates: GPUs, their MIG instances, and those it lost before they told their names.

use super::{error, ffi, plausible};
use crate::source::calls::CallTracker;
use nodeglass_protocol::{GpuUuid, Reading, Text};
use nvml_wrapper::{Device, Nvml, error::NvmlError};

/// One row of the inventory.
pub struct DeviceHandle<'nvml> {
    /// Who it is.
    pub uuid: GpuUuid,
    /// Whether it said so itself just now; a lost GPU does not.
    pub answers: bool,
    /// NVML index; an instance has that of its GPU.
    pub index: u32,
    /// The handle, or why there is none.
    pub device: Result<Device<'nvml>, HandleError>,
    /// For an instance: its GPU, and its ids there.
    pub mig: Option<Instance>,
    /// Whether it is a GPU that is divided into instances; `None` if it does not know that mode.
    pub divided: Option<bool>,
    /// Why its instances are not known, if NVML reported more of them than there can be.
    pub instances: Reading<()>,
}

/// Why there is no handle for a GPU that NVML counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleError {
    /// It cannot be read, as a GPU that fell off the bus.
    Faulty(Text),
    /// It hung in another thread, and must not be called until that call has come back.
    Avoided(Text),
    /// Nothing is wrong with it: this user may not use it. Device cgroups do that to the GPUs of other jobs.
    Forbidden,
}

impl HandleError {
    /// One sentence for what cannot be read without the handle.
    pub fn why(&self) -> Text {
        match self {
            Self::Faulty(why) | Self::Avoided(why) => why.clone(),
            Self::Forbidden => error::FORBIDDEN.into(),
        }
    }
}

/// A MIG instance's place.
pub struct Instance {
    /// Its GPU.
    pub parent: GpuUuid,
    /// GPU instance id and compute instance id, by which process lists name it.
    pub ids: Option<(u32, u32)>,
}

/// Every GPU in NVML's order, each followed by its instances. One that must not be called keeps the rows that it had.
pub fn enumerate<'nvml>(nvml: &'nvml Nvml, calls: &CallTracker) -> Vec<DeviceHandle<'nvml>> {
    let mut handles = Vec::new();
    for index in 0..count(nvml).unwrap_or(0) {
        if let Some(why) = calls.avoided(index) {
            handles.extend(avoided(index, &why, calls));
            continue;
        }
        calls.begin_gpu_call(index);
        let mut handle = gpu(nvml, index);
        let instances = handle.device.as_ref().map_or(Ok(Vec::new()), |device| instances(&handle, device));
        let instances = instances.unwrap_or_else(|error| {
            handle.instances = Reading::Failed(error::of(&error).into());
            Vec::new()
        });
        handles.push(handle);
        handles.extend(instances);
    }
    handles
}

/// How many GPUs there are.
///
/// # Errors
/// NVML's; insufficient size if the number is implausible.
pub fn count(nvml: &Nvml) -> Result<u32, NvmlError> {
    nvml.device_count().and_then(|count| ffi::within(count, plausible::MAX_GPUS))
}

/// The rows of a GPU that must not be called.
fn avoided<'nvml>(index: u32, why: &Text, calls: &CallTracker) -> Vec<DeviceHandle<'nvml>> {
    let handle = |uuid: GpuUuid, mig| DeviceHandle {
        uuid,
        answers: false,
        index,
        device: Err(HandleError::Avoided(why.clone())),
        mig,
        divided: None,
        instances: Reading::Value(()),
    };
    let known = calls.known().map(|known| known.gpus.as_slice()).unwrap_or_default();
    let rows = known.iter().filter(|facts| facts.index == index).map(|facts| {
        let ids = facts.mig.as_ref().map(|mig| (mig.gpu_instance, mig.compute_instance));
        let mig = facts.mig_parent.clone().map(|parent| Instance { parent, ids });
        handle(facts.uuid.clone(), mig)
    });
    let rows: Vec<_> = rows.collect();
    // It hung before it told who it is.
    if rows.is_empty() { vec![handle(GpuUuid::new(format!("LOST-{index}")), None)] } else { rows }
}

fn gpu(nvml: &Nvml, index: u32) -> DeviceHandle<'_> {
    match nvml.device_by_index(index) {
        Ok(device) => {
            let uuid = device.uuid();
            DeviceHandle {
                answers: uuid.is_ok(),
                uuid: uuid.map_or_else(|error| nameless(index, &error), GpuUuid::new),
                index,
                divided: divided(&device),
                device: Ok(device),
                mig: None,
                instances: Reading::Value(()),
            }
        }
        Err(error) => DeviceHandle {
            uuid: nameless(index, &error),
            answers: false,
            index,
            device: Err(match error {
                NvmlError::NoPermission => HandleError::Forbidden,
                error => HandleError::Faulty(error::of(&error)),
            }),
            mig: None,
            divided: None,
            instances: Reading::Value(()),
        },
    }
}

/// What a GPU is called that did not say who it is.
fn nameless(index: u32, error: &NvmlError) -> GpuUuid {
    let what = match error {
        NvmlError::NoPermission => "FORBIDDEN",
        error if error::fault(error).is_some() => "LOST",
        _ => "UNKNOWN",
    };
    GpuUuid::new(format!("{what}-{index}"))
}

impl DeviceHandle<'_> {
    /// Whether the GPU is another one than when it was enumerated: it answers again, was divided into
    /// instances or made whole, or has other instances. Costs nothing for a GPU that is as it was, but for
    /// one in MIG mode, which is asked for its load in turn by no other call.
    pub fn has_changed(&self, nvml: &Nvml, instances: usize) -> bool {
        let device = match &self.device {
            Ok(device) => device,
            Err(HandleError::Avoided(_)) => return false,
            Err(_) => return nvml.device_by_index(self.index).is_ok(),
        };
        if !self.answers {
            return device.uuid().is_ok();
        }
        self.divided == Some(true) && (self.has_another_mode() || has_other_instances(device, instances))
    }

    /// Whether it is divided now and was not, or the other way round.
    pub fn has_another_mode(&self) -> bool {
        self.device.as_ref().is_ok_and(|device| {
            let now = divided(device);
            now.is_some() && now != self.divided
        })
    }
}

/// Whether there is one instance more than so many, or one fewer.
fn has_other_instances(gpu: &Device<'_>, instances: usize) -> bool {
    let exists = |position: usize| {
        u32::try_from(position).is_ok_and(|position| gpu.mig_device_by_index(position).is_ok())
    };
    exists(instances) || instances.checked_sub(1).is_some_and(|last| !exists(last))
}

fn divided(gpu: &Device<'_>) -> Option<bool> {
    gpu.mig_mode().ok().map(|mode| mode.current == 1)
}

fn instances<'nvml>(
    parent: &DeviceHandle<'_>,
    gpu: &Device<'nvml>,
) -> Result<Vec<DeviceHandle<'nvml>>, NvmlError> {
    if parent.divided != Some(true) {
        return Ok(Vec::new());
    }
    // The count is the most there can be; the real ones come first, then NotFound.
    let most = ffi::within(gpu.mig_device_count().unwrap_or(0), plausible::MOST_INSTANCES)?;
    Ok((0..most)
        .map_while(|position| gpu.mig_device_by_index(position).ok())
        .enumerate()
        .map(|(position, device)| instance(parent, position, device))
        .collect())
}

fn instance<'nvml>(parent: &DeviceHandle<'_>, position: usize, device: Device<'nvml>) -> DeviceHandle<'nvml> {
    let uuid = device
        .uuid()
        .map_or_else(|_| GpuUuid::new(format!("{}/mig-{position}", parent.uuid.as_str())), GpuUuid::new);
    let ids = super::ffi_compat::instance_ids(&device);
    let mig = Some(Instance { parent: parent.uuid.clone(), ids });
    DeviceHandle {
        uuid,
        answers: true,
        index: parent.index,
        device: Ok(device),
        mig,
        divided: None,
        instances: Reading::Value(()),
    }
}
