//! Tests of lists of machines: formats of other tools, groups, duplicates, junk.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn this_machine() -> ThisMachine {
    ThisMachine {
        name: NodeName::new("node01.lab").unwrap(),
        has_address: |address| address == IpAddr::from([192, 168, 0, 1]),
    }
}

fn list(text: &str) -> HostList {
    let this_machine = this_machine();
    let mut builder = Builder::new(&this_machine);
    builder.file(Path::new("hosts.txt"), text);
    builder.finish()
}

/// Machines as `group/name=target`, where `-` is this machine.
fn machines(list: &HostList) -> Vec<String> {
    let machine = |host: &ListedHost| {
        let group = host.group.as_ref().map(|group| format!("{group}/")).unwrap_or_default();
        match &host.target {
            Target::ThisMachine => format!("{group}{}=-", host.node),
            Target::Ssh(target) => format!("{group}{}={target}", host.node),
        }
    };
    list.hosts.iter().map(machine).collect()
}

fn problems(list: &HostList) -> Vec<String> {
    list.problems.summary(usize::MAX, "").iter().map(ToString::to_string).collect()
}

/// The example of nvgpu's repository, `nvgpu_master.example.cfg`.
#[test]
fn an_nvgpu_users_list_works_unchanged() {
    let agents = "AGENTS = [
         'self', # node01 - master - direct access without using HTTP
         'http://node02:1080',
         'http://node03:1080',
         'http://node04:1080',
]
";
    let list = list(agents);
    assert_eq!(machines(&list), ["node01.lab=-", "node02=node02", "node03=node03", "node04=node04"]);
    assert_eq!(problems(&list), [""; 0]);
}

#[test]
fn an_nvgpu_list_may_be_written_in_other_ways() {
    for text in [
        "AGENTS = ['self', 'http://node02:1080']\n",
        "DEBUG = True\nAGENTS=[\"self\",\n  u'http://node02:1080', ]  # all\nMAX_AGE = 5\n",
        "AGENTS = (\n'self',\n\n'node02'\n)\n",
    ] {
        let list = list(text);
        assert_eq!(machines(&list), ["node01.lab=-", "node02=node02"], "{text}");
        assert_eq!(problems(&list), [""; 0], "{text}");
    }
    let broken = list("AGENTS = [\n 'node02',\n node03,\n 'node04',\n]\nnode05\n");
    assert_eq!(machines(&broken), ["node02=node02", "node04=node04", "node05=node05"]);
    assert_eq!(problems(&broken), ["hosts.txt:3: expected a host in quotes instead of \"node03,\""]);
}

/// The file that the README of GPU Cluster Status Monitor creates, whose first address is its main node.
#[test]
fn a_gcsm_hosts_file_works_unchanged() {
    let list = list("192.168.0.1\n192.168.0.2\n");
    assert_eq!(machines(&list), ["node01.lab=-", "192.168.0.2=192.168.0.2"]);
    assert_eq!(problems(&list), [""; 0]);
}

#[test]
fn a_list_may_have_groups_comments_users_ports_and_ranges() {
    let list = list(
        "\u{feff}# ours\r\ngpu1   # the old one\r\n\r\n[training]\r\n  alice@gpu[08-09]:2222, gpu10\r\n\
         [ inference and tests ]\nself\n",
    );
    assert_eq!(
        machines(&list),
        [
            "gpu1=gpu1",
            "training/gpu08=ssh://alice@gpu08:2222",
            "training/gpu09=ssh://alice@gpu09:2222",
            "training/gpu10=gpu10",
            "inference and tests/node01.lab=-",
        ]
    );
    assert_eq!(problems(&list), [""; 0]);
}

#[test]
fn bad_lines_are_reported_with_their_number_and_the_others_are_watched() {
    let list = list("gpu1\ngpu2 slots=8\n[]\n-oProxyCommand=x\ngpu3\n");
    assert_eq!(machines(&list), ["gpu1=gpu1", "gpu3=gpu3"]);
    let problems = problems(&list);
    assert_eq!(problems.len(), 3, "{problems:#?}");
    assert!(problems[0].starts_with("hosts.txt:2: \"gpu2 slots=8\" contains a space; "), "{problems:#?}");
    assert!(problems[1].starts_with("hosts.txt:3: the group has no name"), "{problems:#?}");
    assert!(problems[2].starts_with("hosts.txt:4: "), "{problems:#?}");
}

#[test]
fn a_host_that_is_listed_twice_is_one_message() {
    let this_machine = this_machine();
    let mut builder = Builder::new(&this_machine);
    builder.flags(&entry::parse("gpu1,self").unwrap());
    builder.file(Path::new("hosts.txt"), "GPU1\nbob@gpu2\ncarol@gpu2\nnode01\n");
    let list = builder.finish();
    assert_eq!(machines(&list), ["gpu1=gpu1", "node01.lab=-", "gpu2=bob@gpu2"]);
    let problems = problems(&list);
    assert_eq!(problems[0], "hosts.txt:1: GPU1 is listed in --host already");
    assert!(
        problems[1].starts_with(
            "hosts.txt:3: carol@gpu2 is not watched, because bob@gpu2 in hosts.txt:2 has the same name"
        ),
        "{problems:#?}"
    );
    assert_eq!(problems[2], "hosts.txt:4: node01.lab is listed in --host already");
    assert_eq!(problems.len(), 3);
}

#[test]
fn a_list_has_a_bounded_number_of_machines_and_of_messages() {
    let mut text = String::new();
    (0..100).for_each(|number| writeln!(text, "bad line {number}").unwrap());
    text.push_str("n[00001-65536]\n");
    let list = list(&text);
    assert_eq!(list.hosts.len(), MAX_HOSTS);
    let shown = list.problems.summary(3, "see the log");
    assert_eq!(shown.len(), 4);
    assert_eq!(shown[3].as_str(), "and 98 more problems in the list of machines; see the log");
}

proptest! {
    #[test]
    fn any_text_is_a_list_or_a_problem(text in "(AGENTS = \\[|[a-b0-9\\[\\],:@'\" \\n#-]{0,12}|.*){0,6}") {
        let list = list(&text);
        prop_assert!(list.hosts.len() <= MAX_HOSTS);
    }
}
