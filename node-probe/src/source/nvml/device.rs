//! Enumeration of GPUs and MIG instances, including GPUs that were lost before they reported their
//! UUID.

use super::{error, ffi};
use crate::source::{calls::CallTracker, plausible};
use nodeglass_protocol::{GpuUuid, Reading, Text};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use std::{collections::HashSet, sync::Arc};

/// One entry of the inventory.
pub struct DeviceHandle<'nvml> {
    /// Identity.
    pub uuid: GpuUuid,
    /// Whether it reported its UUID in this enumeration; a lost GPU does not.
    pub answers: bool,
    /// NVML index; an instance has the index of its GPU.
    pub index: u32,
    /// The device handle, or the reason why there is none.
    pub device: Result<Device<'nvml>, HandleError>,
    /// For an instance: its GPU and its ids.
    pub mig: Option<Instance>,
    /// Whether MIG mode is enabled; `None` if the GPU has no such mode.
    pub divided: Option<bool>,
    /// Failed if NVML reported an implausible number of instances.
    pub instances: Reading<()>,
    /// Tracks each call for the watchdog.
    pub calls: Arc<CallTracker>,
}

/// Reason why a counted GPU has no handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleError {
    /// It cannot be read, such as a GPU that fell off the bus.
    Faulty(Text),
    /// A call hung in another thread; it must not be called until that call has returned.
    Avoided(Text),
    /// This user has no access, for example by a device cgroup that excludes GPUs of other jobs.
    Forbidden,
}

impl HandleError {
    /// Reason for readings that need the handle.
    pub fn why(&self) -> Text {
        match self {
            Self::Faulty(why) | Self::Avoided(why) => why.clone(),
            Self::Forbidden => error::FORBIDDEN.into(),
        }
    }
}

/// Identity of a MIG instance.
pub struct Instance {
    /// Its GPU.
    pub parent: GpuUuid,
    /// Its position among the instances that NVML numbers.
    pub position: u32,
    /// GPU instance id and compute instance id, which process lists refer to.
    pub ids: Option<(u32, u32)>,
}

/// Enumerates all GPUs in NVML's order, each followed by its instances. A GPU that must not be
/// called keeps its previous entries. If NVML does not state how many there are, as many as before (`known`) are
/// enumerated.
pub fn enumerate<'nvml>(nvml: &'nvml Nvml, calls: &Arc<CallTracker>, known: u32) -> Vec<DeviceHandle<'nvml>> {
    let (mut handles, mut seen) = (Vec::new(), HashSet::new());
    for index in 0..count(nvml).unwrap_or(known) {
        if let Some(why) = calls.avoided(index) {
            let avoided = avoided(index, &why, calls);
            seen.extend(avoided.iter().map(|handle| handle.uuid.clone()));
            handles.extend(avoided);
            continue;
        }
        calls.begin_gpu_call(index);
        // NVML counts more than there are.
        let Some(mut handle) = gpu(nvml, index, calls) else { continue };
        set_distinct(&mut handle.uuid, &mut seen, || format!("UNKNOWN-{index}"));
        let instances = handle.device.as_ref().map_or(Ok(Vec::new()), |device| instances(&handle, device));
        let mut instances = instances.unwrap_or_else(|error| {
            handle.instances = Reading::Failed(error::of(&error).into());
            Vec::new()
        });
        for (position, instance) in (0..).zip(&mut instances) {
            set_distinct(&mut instance.uuid, &mut seen, || of_position(&handle, position));
        }
        handles.push(handle);
        handles.extend(instances);
    }
    handles
}

/// Replaces a UUID that is empty or another entry's, whose readings and processes would be taken for
/// this one's.
fn set_distinct(uuid: &mut GpuUuid, seen: &mut HashSet<GpuUuid>, substitute: impl FnOnce() -> String) {
    if uuid.as_str().is_empty() || seen.contains(uuid) {
        *uuid = GpuUuid::new(substitute());
    }
    seen.insert(uuid.clone());
}

/// Substitute for the UUID of an instance.
fn of_position(parent: &DeviceHandle<'_>, position: u32) -> String {
    format!("{}/mig-{position}", parent.uuid.as_str())
}

/// Returns the number of GPUs.
///
/// # Errors
/// Errors of NVML; insufficient size if the number is implausible.
pub fn count(nvml: &Nvml) -> Result<u32, NvmlError> {
    nvml.device_count().and_then(|count| ffi::within(count, plausible::MAX_GPUS))
}

/// Returns the previous entries of a GPU that must not be called.
fn avoided<'nvml>(index: u32, why: &Text, calls: &Arc<CallTracker>) -> Vec<DeviceHandle<'nvml>> {
    let handle = |uuid: GpuUuid, mig| DeviceHandle {
        uuid,
        answers: false,
        index,
        device: Err(HandleError::Avoided(why.clone())),
        mig,
        divided: None,
        instances: Reading::Value(()),
        calls: Arc::clone(calls),
    };
    let known = calls.known().map(|known| known.gpus.as_slice()).unwrap_or_default();
    let rows = known.iter().filter(|facts| facts.index == index).map(|facts| {
        let ids = facts.mig.as_ref().map(|mig| (mig.gpu_instance, mig.compute_instance));
        let mig = facts.mig_parent.clone().map(|parent| Instance { parent, position: 0, ids });
        handle(facts.uuid.clone(), mig)
    });
    let rows: Vec<_> = rows.collect();
    // It hung before it reported its UUID.
    if rows.is_empty() { vec![handle(GpuUuid::new(format!("LOST-{index}")), None)] } else { rows }
}

/// Returns the GPU with an index; `None` if NVML calls the index invalid.
fn gpu<'nvml>(nvml: &'nvml Nvml, index: u32, calls: &Arc<CallTracker>) -> Option<DeviceHandle<'nvml>> {
    let calls = Arc::clone(calls);
    let handle = match nvml.device_by_index(index) {
        Err(NvmlError::InvalidArg) => return None,
        Ok(device) => {
            calls.begin_next_call();
            let uuid = device.uuid();
            calls.begin_next_call();
            DeviceHandle {
                answers: uuid.is_ok(),
                uuid: uuid.map_or_else(|error| nameless(index, &error), GpuUuid::new),
                index,
                divided: divided(&device),
                device: Ok(device),
                mig: None,
                instances: Reading::Value(()),
                calls,
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
            calls,
        },
    };
    Some(handle)
}

/// Substitute for the UUID of a GPU that did not report it.
fn nameless(index: u32, error: &NvmlError) -> GpuUuid {
    let what = match error {
        NvmlError::NoPermission => "FORBIDDEN",
        error if error::fault(error).is_some() => "LOST",
        _ => "UNKNOWN",
    };
    GpuUuid::new(format!("{what}-{index}"))
}

impl DeviceHandle<'_> {
    /// Returns whether the GPU changed since the enumeration: it recovered, its MIG mode was switched, or
    /// its instances changed. Free of cost for an unchanged GPU, except in MIG mode, in which no
    /// other query would notice.
    pub fn has_changed(&self, nvml: &Nvml, instances: &[Self]) -> bool {
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

    /// Returns whether its MIG mode was switched.
    pub fn has_another_mode(&self) -> bool {
        self.device.as_ref().is_ok_and(|device| {
            let now = divided(device);
            now.is_some() && now != self.divided
        })
    }
}

/// Returns whether the GPU has other instances: an instance at the first position that was free, or none at the last
/// position that was not.
fn has_other_instances(gpu: &Device<'_>, instances: &[DeviceHandle<'_>]) -> bool {
    let exists = |position: u32| gpu.mig_device_by_index(position).is_ok();
    let positions = || instances.iter().filter_map(|handle| handle.mig.as_ref()).map(|mig| mig.position);
    let first_free = (0..).zip(positions()).find(|(at, position)| at != position);
    let first_free = first_free.map_or(instances.len() as u32, |(at, _)| at);
    exists(first_free) || positions().next_back().is_some_and(|last| !exists(last))
}

/// Returns whether MIG mode is enabled. In a container with an instance alone, the GPU may not state it, but has
/// the instance.
fn divided(gpu: &Device<'_>) -> Option<bool> {
    match gpu.mig_mode() {
        Ok(mode) => Some(mode.current == 1),
        Err(error) if error::fault(&error).is_some() => None,
        Err(_) => gpu.mig_device_by_index(0).is_ok().then_some(true),
    }
}

fn instances<'nvml>(
    parent: &DeviceHandle<'_>,
    gpu: &Device<'nvml>,
) -> Result<Vec<DeviceHandle<'nvml>>, NvmlError> {
    if parent.divided != Some(true) {
        return Ok(Vec::new());
    }
    // The reported count is the maximum, and instances that were destroyed leave positions free.
    let most = gpu.mig_device_count().unwrap_or(plausible::MAX_INSTANCES);
    let most = ffi::within(most, plausible::MAX_INSTANCES)?;
    Ok((0..most)
        .filter_map(|position| {
            parent.calls.begin_next_call();
            Some(instance(parent, position, gpu.mig_device_by_index(position).ok()?))
        })
        .collect())
}

fn instance<'nvml>(parent: &DeviceHandle<'_>, position: u32, device: Device<'nvml>) -> DeviceHandle<'nvml> {
    parent.calls.begin_next_call();
    let uuid = device.uuid().map_or_else(|_| GpuUuid::new(of_position(parent, position)), GpuUuid::new);
    let ids = super::ffi_compat::instance_ids(&device);
    let mig = Some(Instance { parent: parent.uuid.clone(), position, ids });
    DeviceHandle {
        uuid,
        answers: true,
        index: parent.index,
        device: Ok(device),
        mig,
        divided: None,
        instances: Reading::Value(()),
        calls: Arc::clone(&parent.calls),
    }
}
