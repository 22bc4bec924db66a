//! Every exported symbol returns an injected error before it reads its arguments.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use crate::machine::{Machine, raw};
use fake_nvml::install;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    ffi::{CString, c_void},
};

/// A return code that only injected errors have.
const ORDERED: u32 = 77;
/// Symbols without a return code, and the one that yields the test's device.
const SPARED: [&str; 3] = ["nvmlErrorString", "nvmlShutdown", "nvmlDeviceGetHandleByIndex_v2"];
/// Prefixes of names, among those that begin with `nvmlDevice` or `nvmlGpm`, that take no device.
const NOT_OF_A_DEVICE: [&str; 5] = [
    "nvmlDeviceGetHandleBy",
    "nvmlDeviceGetCount",
    "nvmlGpmMetricsGet",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
];

/// The maximum number of arguments, in words; a C function ignores further ones.
type Any =
    unsafe extern "C" fn(*mut c_void, *mut u64, *mut u64, *mut u64, *mut u64, *mut u64, *mut u64) -> u32;

/// Returns whether a symbol's first argument is a device.
fn of_a_device(name: &str) -> bool {
    let begins = |begin: &&str| name.starts_with(*begin);
    ["nvmlDevice", "nvmlGpm"].iter().any(begins) && !NOT_OF_A_DEVICE.iter().any(begins)
}

/// Every symbol of NVML's that the library has.
fn exported(machine: &Machine) -> Vec<(String, Any)> {
    let library = std::fs::read(install::library().unwrap()).unwrap();
    let names: BTreeSet<_> = install::symbols(&library).map(|(_, name)| name.to_owned()).collect();
    let path = CString::new(machine.library().as_os_str().as_encoded_bytes()).unwrap();
    #[expect(unsafe_code, reason = "symbols are found by name")]
    // SAFETY: the library is loaded already and stays so; NVML's symbols are functions.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        assert!(!handle.is_null());
        let find = |name: String| {
            let symbol = libc::dlsym(handle, CString::new(name.as_str()).unwrap().as_ptr());
            (!symbol.is_null()).then(|| (name, std::mem::transmute::<*mut c_void, Any>(symbol)))
        };
        names.into_iter().filter_map(find).collect()
    }
}

/// The return code of a symbol for a device, or zero, and further zeros as arguments.
fn answer(machine: &Machine, name: &str, call: Any) -> u32 {
    let mut zeros = [0_u64; 1 << 10];
    let arguments = zeros.as_mut_ptr();
    let first = if of_a_device(name) { raw(&machine.gpu(0)).cast() } else { arguments.cast() };
    #[expect(unsafe_code, reason = "the calls are made as C makes them")]
    // SAFETY: whatever a pointer is for, there are 8 KiB of zeros behind it.
    unsafe {
        call(first, arguments, arguments, arguments, arguments, arguments, arguments)
    }
}

#[test]
fn each_symbol_fails_by_injection_on_all_gpus_or_on_one() {
    let machine = Machine::new(&json!({"gpus": [{}]}));
    let mut symbols = exported(&machine);
    symbols.retain(|(name, _)| !SPARED.contains(&name.as_str()));
    assert!(symbols.len() > 200, "only {} symbols were found", symbols.len());
    let faults: Map<String, Value> = symbols.iter().map(|(name, _)| (name.clone(), json!(ORDERED))).collect();
    let disobedient = |wanted: fn(&str) -> bool| {
        let calls = symbols.iter().filter(|(name, _)| wanted(name));
        let answers = calls.map(|(name, call)| (name.as_str(), answer(&machine, name, *call)));
        answers.filter(|(_, code)| *code != ORDERED).collect::<Vec<_>>()
    };
    machine.set(&json!({"errors": faults, "gpus": [{}]}));
    assert_eq!(disobedient(|_| true), []);
    machine.set(&json!({"gpus": [{"errors": faults}]}));
    assert_eq!(disobedient(of_a_device), []);
}
