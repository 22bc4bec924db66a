//! A device cgroup: a driver does not count the GPUs whose device file the process may not open.

use crate::state::identity::{bus, gpu_uuid, mig_uuid, serial};
use crate::state::{Overridable, State};
use std::{fs::File, io::ErrorKind};

/// Removes the GPUs that this process may not open. The others keep their identity, and are numbered anew.
pub fn confine(state: &mut State) {
    let is_admitted: Vec<bool> =
        (0..state.gpus.len()).map(|index| is_admitted(minor(state, index))).collect();
    for index in 0..state.gpus.len() {
        let (minor, socket) = (minor(state, index), state.socket(index));
        let gpu = &mut state.gpus[index];
        (gpu.uuid, gpu.bus) = (Some(gpu_uuid(index, gpu)), Some(bus(index, gpu)));
        gpu.board.serial = serial(index, gpu);
        gpu.minor = Some(minor);
        for (place, number) in [(&mut gpu.board.socket, socket), (&mut gpu.board.module, index as u32 + 1)] {
            if *place == Overridable::Follows {
                *place = Overridable::Value(number);
            }
        }
        for position in 0..gpu.mig.len() {
            gpu.mig[position].uuid = Some(mig_uuid(index, position, &gpu.mig[position]));
        }
    }
    if let Some(rows) = &mut state.topology {
        keep(rows, &is_admitted);
        rows.iter_mut().for_each(|row| keep(row, &is_admitted));
    }
    keep(&mut state.gpus, &is_admitted);
}

fn minor(state: &State, index: usize) -> u32 {
    state.gpus[index].minor.unwrap_or(index as u32)
}

/// A stand-in for a device has no driver, so that opening it fails in another way even if it is admitted.
fn is_admitted(minor: u32) -> bool {
    !File::open(format!("/dev/nvidia{minor}")).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn keep<T>(list: &mut Vec<T>, is_kept: &[bool]) {
    let mut is_kept = is_kept.iter();
    list.retain(|_| is_kept.next().copied().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Gpu;

    #[test]
    fn only_admitted_entries_are_kept() {
        let mut list = vec![10, 11, 12, 13];
        keep(&mut list, &[false, true, false]);
        assert_eq!(list, [11, 13]);
    }

    #[test]
    fn a_gpu_keeps_its_identity_wherever_it_is_listed() {
        let mut state = State { gpus: vec![Gpu::default(); 2], ..State::default() };
        let uuid = gpu_uuid(1, &state.gpus[1]);
        confine(&mut state);
        let gpu = &state.gpus[1];
        assert_eq!((gpu.uuid.as_deref(), gpu.minor, gpu.bus), (Some(uuid.as_str()), Some(1), Some(8)));
    }
}
