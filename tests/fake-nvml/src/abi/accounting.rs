//! Accounting: what processes did over their lives, if root has switched it on.

use super::{
    Answer, NOT_FOUND, NOT_SUPPORTED, Seat,
    exports::{getters, getters_of_list},
};
use crate::state::{Account, Accounting, Process};
use nvml_wrapper_sys::bindings::nvmlAccountingStats_t;

/// How many processes the driver remembers.
const REMEMBERED: u32 = 4_000;

/// A GPU's accounting; MIG has none.
fn accounting<'a>(seat: &Seat<'a>) -> Answer<&'a Accounting> {
    seat.whole()?.accounting.as_ref().ok_or(NOT_SUPPORTED)
}

/// The same, if it is on.
fn kept<'a>(seat: &Seat<'a>) -> Answer<&'a Accounting> {
    accounting(seat).and_then(|accounting| if accounting.on { Ok(accounting) } else { Err(NOT_SUPPORTED) })
}

fn pids(seat: &Seat<'_>) -> Answer<Vec<u32>> {
    let ended = kept(seat)?.ended.iter().map(|account| account.pid);
    let mut all: Vec<u32> = ended.chain(seat.gpu.processes.iter().map(|process| process.pid)).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A process of now, whose account goes on: its time is not known before its end.
fn running(seat: &Seat<'_>, process: &Process) -> nvmlAccountingStats_t {
    let account = Account {
        pid: process.pid,
        util: process.sm.or(seat.gpu.util).unwrap_or(0),
        mem_util: process.mem.or(seat.gpu.mem_util).unwrap_or(0),
        most_mib: process.mem_mib.unwrap_or(0),
        ..Account::default()
    };
    nvmlAccountingStats_t { isRunning: 1, ..stats(&account) }
}

fn stats(account: &Account) -> nvmlAccountingStats_t {
    nvmlAccountingStats_t {
        gpuUtilization: account.util,
        memoryUtilization: account.mem_util,
        maxMemoryUsage: account.most_mib << 20,
        time: account.time_ms,
        startTime: account.started_us,
        isRunning: 0,
        reserved: [0; 5],
    }
}

fn account(seat: &Seat<'_>, pid: u32) -> Answer<nvmlAccountingStats_t> {
    let ended = &kept(seat)?.ended;
    if let Some(process) = seat.gpu.processes.iter().find(|process| process.pid == pid) {
        return Ok(running(seat, process));
    }
    ended.iter().rfind(|account| account.pid == pid).map(stats).ok_or(NOT_FOUND)
}

getters! {
    nvmlDeviceGetAccountingMode() -> u32 = |seat| accounting(&seat).map(|accounting| accounting.on.into());
    nvmlDeviceGetAccountingBufferSize() -> u32 = |seat| accounting(&seat).map(|_| REMEMBERED);
    nvmlDeviceGetAccountingStats(pid: u32) -> nvmlAccountingStats_t = |seat| account(&seat, pid);
}

getters_of_list! {
    nvmlDeviceGetAccountingPids() -> u32 = |seat| pids(&seat);
}
