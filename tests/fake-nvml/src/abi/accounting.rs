//! Accounting: statistics of processes over their lifetime, if enabled by root.

use super::{
    Answer, DeviceContext, NOT_FOUND, NOT_SUPPORTED,
    exports::{getters, getters_of_list},
};
use crate::state::{Account, Accounting, Process};
use nvml_wrapper_sys::bindings::nvmlAccountingStats_t;

/// Number of processes that the driver remembers.
const REMEMBERED: u32 = 4_000;

/// A GPU's accounting; MIG has none.
fn accounting<'a>(ctx: &DeviceContext<'a>) -> Answer<&'a Accounting> {
    ctx.physical_gpu()?.accounting.as_ref().ok_or(NOT_SUPPORTED)
}

/// Returns the kept processes, if enabled.
fn kept<'a>(ctx: &DeviceContext<'a>) -> Answer<&'a Accounting> {
    accounting(ctx).and_then(|accounting| if accounting.on { Ok(accounting) } else { Err(NOT_SUPPORTED) })
}

fn pids(ctx: &DeviceContext<'_>) -> Answer<Vec<u32>> {
    let ended = kept(ctx)?.ended.iter().map(|account| account.pid);
    let mut all: Vec<u32> = ended.chain(ctx.gpu.processes.iter().map(|process| process.pid)).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A running process, whose statistics continue: its total time is unknown until it ends.
fn running(ctx: &DeviceContext<'_>, process: &Process) -> nvmlAccountingStats_t {
    let account = Account {
        pid: process.pid,
        util: process.sm.or(ctx.gpu.util).unwrap_or(0),
        mem_util: process.mem.or(ctx.gpu.mem_util).unwrap_or(0),
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

fn account(ctx: &DeviceContext<'_>, pid: u32) -> Answer<nvmlAccountingStats_t> {
    let ended = &kept(ctx)?.ended;
    if let Some(process) = ctx.gpu.processes.iter().find(|process| process.pid == pid) {
        return Ok(running(ctx, process));
    }
    ended.iter().rfind(|account| account.pid == pid).map(stats).ok_or(NOT_FOUND)
}

getters! {
    nvmlDeviceGetAccountingMode() -> u32 = |ctx| accounting(&ctx).map(|accounting| accounting.on.into());
    nvmlDeviceGetAccountingBufferSize() -> u32 = |ctx| accounting(&ctx).map(|_| REMEMBERED);
    nvmlDeviceGetAccountingStats(pid: u32) -> nvmlAccountingStats_t = |ctx| account(&ctx, pid);
}

getters_of_list! {
    nvmlDeviceGetAccountingPids() -> u32 = |ctx| pids(&ctx);
}
