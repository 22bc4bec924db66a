//! Settings: their layers, and what is said about invalid ones.

use super::{Home, stderr};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn a_bad_value_is_one_sentence_and_exit_code_two() {
    let home = Home::new();
    for (args, says) in [
        (&["--bind", "0.0.0.0:8080"][..], "--bind: 0.0.0.0:8080 can be reached from other machines"),
        (&["--bind", "0.0.0.0:8080"], "ssh -L"),
        (&["--bind", "nonsense"], "--bind: \"nonsense\" is not an address to listen on"),
        (&["--bind", "nonsense"], "127.0.0.1:8080"),
        (&["--slurm-interval", "1s"], "--slurm-interval: 1s is too short"),
        (&["--launcher", "telnet"], "--launcher: unknown launcher \"telnet\""),
        (&["--probe", "/nowhere/probe"], "--probe: cannot use the probe \"/nowhere/probe\""),
        (&["--demo", "--local"], "--demo and --local exclude each other"),
        (&["--scenario", "/nowhere.toml"], "--scenario: \"/nowhere.toml\" is neither demo nor large"),
        (&["--user=-x"], "--user: \"-x\" is not a login name"),
        (&["--proxy-user-header", "X-User"], "--proxy-user-header needs --trusted-proxy"),
        (
            &["--trusted-proxy", "root", "--proxy-user-header", "Cookie"],
            "is not a header that can name a user",
        ),
        (&["--cpu-max", "half"], "--cpu-max: \"half\" is not a part of a core"),
        (
            &["--memory-max", "80M"],
            "--memory-max 80M leaves no room for --history-mem 64M: everything else needs 48M",
        ),
        (&["--memory-max", "80M"], "use --memory-max 112M at least, or --history-mem 32M at most"),
        (&["--auto-exit", "5s"], "--auto-exit: 5s is out of range"),
        (&["--config", "/nowhere.toml"], "the configuration file /nowhere.toml cannot be read"),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with("relay: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}

#[test]
fn an_unknown_key_in_the_file_is_named_with_its_line() {
    let home = Home::new();
    home.configure("demo = true\nbnid = \"127.0.0.1:1\"\n");
    let output = home.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("config.toml:2: unknown setting \"bnid\"; did you mean \"bind\"?"), "{text}");
}

#[test]
fn the_nearest_layer_wins_and_its_source_is_shown() {
    let home = Home::new();
    // The comments are aligned with those of all settings.
    let interval = |relay: &mut Command| {
        let line = home.setting(relay, "slurm-interval");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(interval(&mut home.relay(&["config"])), "slurm-interval = \"15s\" # default");
    home.configure("slurm-interval = \"20s\"\n");
    assert!(interval(&mut home.relay(&["config"])).ends_with("# HOME/.config/nodeglass/config.toml:1"));
    let mut relay = home.relay(&["config"]);
    assert_eq!(
        interval(relay.env("NODEGLASS_SLURM_INTERVAL", "30s")),
        "slurm-interval = \"30s\" # environment"
    );
    let mut relay = home.relay(&["config", "--slurm-interval", "40s"]);
    let line = interval(relay.env("NODEGLASS_SLURM_INTERVAL", "30s"));
    assert_eq!(line, "slurm-interval = \"40s\" # command line");
}

#[test]
fn a_flag_overrides_a_switch_of_the_file() {
    let home = Home::new();
    home.configure("demo = true\n");
    assert!(home.setting(&mut home.relay(&["config"]), "demo").starts_with("demo = true "));
    assert!(home.setting(&mut home.relay(&["config", "--demo=false"]), "demo").starts_with("demo = false "));
}

#[test]
fn several_addresses_may_be_given() {
    let home = Home::new();
    let mut relay = home.relay(&["config", "--bind", "127.0.0.1:1,[::1]:1", "--bind", "localhost:2"]);
    let line = home.setting(&mut relay, "bind");
    assert!(line.starts_with("bind = [\"127.0.0.1:1\", \"[::1]:1\", \"localhost:2\"]"), "{line}");
}

#[test]
fn config_prints_a_valid_configuration_file() {
    let home = Home::new();
    let first = home.run(&["config", "--bind", "127.0.0.1:1,[::1]:1", "--demo"]);
    home.configure(std::str::from_utf8(&first.stdout).unwrap());
    let values = |output: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
    };
    let second = home.run(&["config"]);
    assert!(second.status.success(), "{}", stderr(&second));
    assert_eq!(values(&first), values(&second));
}

#[test]
fn every_variable_is_named_after_its_setting() {
    let settings = nodeglass_config::settings();
    assert!(settings.len() > 50, "{}", settings.len());
    for setting in settings {
        let name = setting.get_long().unwrap().to_ascii_uppercase().replace('-', "_");
        assert_eq!(setting.get_env().unwrap().to_str().unwrap(), format!("NODEGLASS_{name}"));
    }
}

#[test]
fn doctor_explains_an_invalid_file_and_checks_the_rest() {
    let home = Home::new();
    home.configure("bindd = \"x\"\n");
    let output = home.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let results = report["results"].as_array().unwrap();
    assert!(results[0]["text"].as_str().unwrap().contains("did you mean \"bind\"?"), "{report:#}");
    assert!(results.iter().any(|result| result["check"] == "running relay"), "{report:#}");
    assert_eq!(home.run(&["doctor", "not a node"]).status.code(), Some(2));
}

#[test]
fn a_configuration_that_others_could_have_written_is_refused() {
    let home = Home::new();
    home.configure("demo = true\n");
    let (file, folder) =
        (home.path().join(".config/nodeglass/config.toml"), home.path().join(".config/nodeglass"));
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (path, wrong, right) in [(&file, 0o666, 0o644), (&folder, 0o777, 0o755)] {
        mode(path, wrong);
        let output = home.run(&["config"]);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains(&format!("{} can be written to by others", path.display())), "{text}");
        mode(path, right);
        assert!(home.run(&["config"]).status.success());
    }
    if std::os::unix::fs::chown(&file, Some(65_534), None).is_ok() {
        assert!(stderr(&home.run(&["config"])).contains("another user (uid 65534)"));
        let named = home.run(&["config", "--config", file.to_str().unwrap()]);
        assert!(stderr(&named).contains("another user"), "by name, too: {}", stderr(&named));
    }
}

#[test]
fn the_command_says_what_is_wrong_with_a_webhook() {
    let home = Home::new();
    let stderr = |args: &[&str]| String::from_utf8(home.run(args).stderr).unwrap();
    let why = stderr(&["report", "17", "--webhook", "ftp://example.org/s3cret"]);
    assert!(why.contains("it must begin with https://") && !why.contains("s3cret"), "{why}");
    let why = stderr(&["report", "17", "--webhook", "https://example.org/"]);
    assert!(why.contains("there is no report of job 17"), "{why}");
    let why = stderr(&["--report-webhook", "https://a:b@example.org/s3cret"]);
    assert!(why.contains("must not contain a user name") && !why.contains("s3cret"), "{why}");
}
