//! Parser of `py-spy dump --json`.

use nodeglass_protocol::Text;
use nodeglass_protocol::capture::{Frame, MAX_FRAMES, file_name};
use serde::Deserialize;

/// A thread as py-spy prints it; further fields are ignored.
#[derive(Debug, Deserialize)]
struct PyThread {
    #[serde(default)]
    thread_name: Option<String>,
    #[serde(default)]
    os_thread_id: Option<u64>,
    #[serde(default)]
    frames: Vec<PyFrame>,
}

/// A frame, innermost first.
#[derive(Debug, Deserialize)]
struct PyFrame {
    #[serde(default)]
    name: String,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    line: i64,
}

/// Returns the frames of the main thread, innermost first.
///
/// # Errors
/// Why there are none.
pub(super) fn main_thread(output: &[u8], pid: u32) -> Result<Vec<Frame>, String> {
    let threads: Vec<PyThread> =
        serde_json::from_slice(output).map_err(|_| "py-spy printed something else than stacks")?;
    let is_main = |thread: &&PyThread| thread.os_thread_id == Some(u64::from(pid));
    let is_named = |thread: &&PyThread| thread.thread_name.as_deref() == Some("MainThread");
    let mut having_frames = threads.iter().filter(|thread| !thread.frames.is_empty());
    let main = threads.iter().find(is_main).or_else(|| threads.iter().find(is_named));
    // An interpreter that is embedded may run on another thread.
    let main = main.filter(|thread| !thread.frames.is_empty()).or_else(|| having_frames.next());
    let main = main.ok_or("no thread runs Python code")?;
    Ok(main.frames.iter().take(MAX_FRAMES).map(frame).collect())
}

fn frame(frame: &PyFrame) -> Frame {
    Frame {
        function: Text::new(&frame.name),
        file: file_name(&frame.filename),
        line: u32::try_from(frame.line).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed by py-spy 0.4.
    const DUMP: &str = r#"[
  {"pid": 77, "thread_id": 139, "thread_name": "pin_memory", "os_thread_id": 80, "active": false, "owns_gil": false,
   "frames": [{"name": "Queue.get", "filename": "/usr/lib/python3.11/queue.py", "module": null, "short_filename": "queue.py",
               "line": 171, "locals": null, "is_entry": true, "is_shim_entry": true}], "process_info": null},
  {"pid": 77, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 77, "active": true, "owns_gil": true,
   "frames": [{"name": "train_step", "filename": "/home/a/train.py", "module": null, "short_filename": "train.py",
               "line": 88, "locals": null, "is_entry": false, "is_shim_entry": false},
              {"name": "<module>", "filename": "/home/a/train.py", "module": null, "short_filename": "train.py",
               "line": 140, "locals": null, "is_entry": true, "is_shim_entry": true}], "process_info": null}
]"#;

    #[test]
    fn the_frames_of_the_main_thread_are_returned_innermost_first() {
        let frames = main_thread(DUMP.as_bytes(), 77).unwrap();
        let shown: Vec<String> =
            frames.iter().map(|frame| format!("{} {}:{}", frame.function, frame.file, frame.line)).collect();
        assert_eq!(shown, ["train_step /home/a/train.py:88", "<module> /home/a/train.py:140"]);
        // In a container, the thread has another id there.
        assert_eq!(main_thread(DUMP.as_bytes(), 9_000).unwrap(), frames);
    }

    #[test]
    fn output_without_stacks_is_an_error() {
        for (output, why) in [
            ("", "something else"),
            ("Error", "something else"),
            ("{}", "something else"),
            (r#"[{"frames": 3}]"#, "something else"),
            ("[]", "no thread"),
            (r#"[{"frames": []}]"#, "no thread"),
        ] {
            assert!(main_thread(output.as_bytes(), 1).unwrap_err().contains(why), "{output}");
        }
    }

    #[test]
    fn frames_are_bounded_and_clean() {
        let frame =
            format!(r#"{{"name": "\u001b[31m{0}", "filename": "/{0}/t.py", "line": -1}}"#, "x".repeat(9_000));
        let output = format!(r#"[{{"frames": [{}]}}]"#, vec![frame.as_str(); 1_000].join(","));
        let frames = main_thread(output.as_bytes(), 1).unwrap();
        assert_eq!((frames.len(), frames[0].line), (MAX_FRAMES, 0));
        assert!(!frames[0].function.as_str().contains('\u{1b}'));
        assert!(frames[0].file.as_str().ends_with("/t.py"));
        assert!(frames[0].function.as_str().len() <= Text::MAX_BYTES);
    }

    proptest! {
        #[test]
        fn no_output_is_too_strange(output in r#"[\[\]{}:,"a-z0-9\\]{0,80}"#) {
            let _ = main_thread(output.as_bytes(), 1);
        }
    }
}
