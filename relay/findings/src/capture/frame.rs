//! The place of a Python stack: the innermost frame that is not plumbing, and the user's own code above it.
//!
//! A frame is plumbing if it belongs to Python's standard library, or if it is private in an installed package: its
//! function or a part of its module begins with an underscore (`_call_impl`, `torch/_ops.py`), or its function is named
//! as a decorator's (`wrapper`). What remains of a library is what its users call: `all_reduce`, `backward`,
//! `DataLoader.__next__`. If every frame is plumbing, the innermost one is taken.

use nodeglass_protocol::capture::Frame;

/// Folders of installed packages.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Functions that call another one without saying what for.
const WRAPPERS: [&str; 5] = ["wrapper", "wrapped", "inner", "wrapped_fn", "decorate_context"];
/// Files whose special methods do not tell their class, or belong to a private one.
const CLASSES: [(&str, &str); 1] = [("torch/utils/data/dataloader.py", "DataLoader")];

/// The package or library that a file belongs to, and its name within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin<'a> {
    /// An installed package.
    Package(&'a str),
    /// Python's standard library.
    Standard(&'a str),
    /// The user's own code.
    Own(&'a str),
}

/// Returns the frame at which a stack stands; `None` if it is empty.
pub(super) fn standing(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().find(|frame| !is_plumbing(frame)).or(stack.first())
}

/// Returns the innermost frame of the user's own code, unless the stack stands there.
pub(super) fn caller(stack: &[Frame]) -> Option<&Frame> {
    let own = stack.iter().find(|frame| matches!(origin(frame.file.as_str()), Origin::Own(_)))?;
    standing(stack).filter(|standing| *standing != own).map(|_| own)
}

/// Returns a frame as text: `all_reduce (torch/distributed/distributed_c10d.py:2501)`.
pub(super) fn label(frame: &Frame) -> String {
    match frame.line {
        0 => format!("{} ({})", function(frame), short(frame)),
        line => format!("{} ({}:{line})", function(frame), short(frame)),
    }
}

/// Returns the function with its class, where that is known.
pub(super) fn function(frame: &Frame) -> String {
    let name = unqualified(frame);
    let class = CLASSES.iter().find(|(file, _)| *file == short(frame)).filter(|_| is_special(name));
    class.map_or_else(|| frame.function.to_string(), |(_, class)| format!("{class}.{name}"))
}

/// Returns the function without its class, which newer versions of py-spy print: `Condition.wait` → `wait`.
fn unqualified(frame: &Frame) -> &str {
    let name = frame.function.as_str();
    name.rsplit_once('.').map_or(name, |(_, name)| name)
}

/// Returns the file's name as it is imported, or its last two parts.
pub(super) fn short(frame: &Frame) -> &str {
    match origin(frame.file.as_str()) {
        Origin::Package(name) | Origin::Standard(name) => name,
        Origin::Own(path) => {
            let mut slashes = path.rmatch_indices('/').map(|(at, _)| at + 1);
            let last_two = slashes.nth(1);
            last_two.map_or(path.trim_start_matches('/'), |at| &path[at..])
        }
    }
}

fn is_plumbing(frame: &Frame) -> bool {
    let name = unqualified(frame);
    match origin(frame.file.as_str()) {
        Origin::Standard(_) => true,
        Origin::Package(file) => {
            WRAPPERS.contains(&name) || is_private(name) || file.split('/').any(is_private)
        }
        Origin::Own(_) => false,
    }
}

fn origin(file: &str) -> Origin<'_> {
    for folder in PACKAGES {
        if let Some(at) = file.rfind(folder) {
            return Origin::Package(&file[at + folder.len()..]);
        }
    }
    // Frozen modules: `<frozen importlib._bootstrap>`. `<stdin>` and `<string>` are the user's.
    if file.starts_with("<frozen ") {
        return Origin::Standard(file);
    }
    match standard(file) {
        Some(name) => Origin::Standard(name),
        None => Origin::Own(file),
    }
}

/// `/usr/lib/python3.11/threading.py` → `threading.py`.
fn standard(file: &str) -> Option<&str> {
    let after = &file[file.rfind("/lib/python3")? + "/lib/python3".len()..];
    let (version, name) = after.split_once('/')?;
    // `python3`, `python3.11`, or `python3.13t` without a global lock.
    let is_version =
        version.is_empty() || version.trim_end_matches('t').strip_prefix('.').is_some_and(is_number);
    (is_version && !name.is_empty()).then_some(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `_ops.py`, but not `__init__.py`.
fn is_private(name: &str) -> bool {
    name.starts_with('_') && !is_special(name)
}

fn is_special(name: &str) -> bool {
    name.starts_with("__") && name.trim_end_matches(".py").ends_with("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCH: &str = "/home/alice/env/lib/python3.11/site-packages/torch";

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame { function: function.into(), file: file.into(), line }
    }

    fn torch(function: &str, file: &str, line: u32) -> Frame {
        frame(function, &format!("{TORCH}/{file}"), line)
    }

    fn stands(stack: &[Frame]) -> (String, Option<String>) {
        (label(standing(stack).unwrap()), caller(stack).map(label))
    }

    #[test]
    fn a_collective_is_named_without_the_wrapper_around_it() {
        let stack = [
            torch("all_reduce", "distributed/distributed_c10d.py", 2_501),
            torch("wrapper", "distributed/c10d_logger.py", 83),
            frame("train_step", "/home/alice/llm/train.py", 88),
            frame("<module>", "/home/alice/llm/train.py", 140),
        ];
        let expected = (
            "all_reduce (torch/distributed/distributed_c10d.py:2501)".to_owned(),
            Some("train_step (llm/train.py:88)".to_owned()),
        );
        assert_eq!(stands(&stack), expected);
    }

    #[test]
    fn a_data_loader_is_named_instead_of_the_queue_that_it_polls() {
        let stack = [
            frame("select", "/usr/lib/python3.11/selectors.py", 415),
            frame("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
            torch("_MultiProcessingDataLoaderIter._try_get_data", "utils/data/dataloader.py", 1_131),
            torch("_MultiProcessingDataLoaderIter._next_data", "utils/data/dataloader.py", 1_301),
            torch("_BaseDataLoaderIter.__next__", "utils/data/dataloader.py", 701),
            frame("<module>", "train.py", 52),
        ];
        let expected = (
            "DataLoader.__next__ (torch/utils/data/dataloader.py:701)".to_owned(),
            Some("<module> (train.py:52)".to_owned()),
        );
        assert_eq!(stands(&stack), expected);
    }

    #[test]
    fn the_backward_pass_is_named_although_its_engine_is_private() {
        let stack = [
            torch("_engine_run_backward", "autograd/graph.py", 825),
            torch("backward", "autograd/__init__.py", 347),
            torch("decorate_context", "utils/_contextlib.py", 116),
        ];
        assert_eq!(stands(&stack), ("backward (torch/autograd/__init__.py:347)".to_owned(), None));
    }

    #[test]
    fn own_code_and_plumbing_alone_are_named_as_they_are() {
        let own = [frame("load", "/a/b/c/data.py", 7), torch("__next__", "utils/data/dataloader.py", 1)];
        assert_eq!(stands(&own), ("load (c/data.py:7)".to_owned(), None));
        let plumbing = [frame("wait", "/opt/lib/python3.12/threading.py", 355)];
        assert_eq!(stands(&plumbing), ("wait (threading.py:355)".to_owned(), None));
        assert_eq!(standing(&[]), None);
        let frozen = frame("_call", "<frozen importlib._bootstrap>", 0);
        assert_eq!(label(&frozen), "_call (<frozen importlib._bootstrap>)");
    }

    #[test]
    fn strange_paths_are_no_reason_to_fail() {
        for file in
            ["", "/", "a", "ä/ö", "/lib/python3", "/lib/python3./", "x/lib/python3.11/", "/site-packages/"]
        {
            let odd = frame("", file, 1);
            let _ = (label(&odd), is_plumbing(&odd));
        }
        assert_eq!(
            origin("/usr/lib/python3/dist-packages/yaml/__init__.py"),
            Origin::Package("yaml/__init__.py")
        );
        assert_eq!(origin("/usr/lib/python3.13t/queue.py"), Origin::Standard("queue.py"));
        assert_eq!(origin("/home/a/lib/python3-tools/x.py"), Origin::Own("/home/a/lib/python3-tools/x.py"));
    }
}
