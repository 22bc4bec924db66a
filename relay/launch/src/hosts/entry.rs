//! Parses an entry of a list of machines: `gpu1`, `alice@gpu[01-08]:2222`, `self`, or the URL of an agent.

use crate::target::{SshTarget, Target};
use nodeglass_hostlist::{HostlistError, MAX_NODES, expand, split_outside_brackets};
use nodeglass_protocol::{IdError, NodeName};
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Maximum number of machines of a list; each is a task and an SSH connection.
pub const MAX_HOSTS: usize = 4_096;

/// A machine as it is listed: its host without user and port, and where its probe is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The host; `localhost` for this machine, whose name is not known yet.
    pub host: NodeName,
    /// The target of its probe.
    pub target: Target,
}

/// The machines of one value of `--host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries(pub Vec<Entry>);

impl FromStr for Entries {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        parse(text).map(Self)
    }
}

/// Error of an entry. Messages say what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Two words.
    #[error("{0:?} contains a space; list one host per line, or separate hosts with commas")]
    Space(String),
    /// An invalid name, range or list.
    #[error("{}", invalid(.0))]
    Host(#[from] HostlistError),
    /// Nothing before or between commas, or after `@`.
    #[error("a host name is missing in {0:?}")]
    Missing(String),
    /// An IPv6 address, which cannot be the name of a node.
    #[error(
        "{0:?} is an IPv6 address; list a name instead, such as a `Host` of ~/.ssh/config that has it as `HostName`"
    )]
    Ipv6(String),
    /// An invalid login name.
    #[error("{0:?} is not a login name; use letters, digits, '.', '_', '+' and '-'")]
    User(String),
    /// An invalid port.
    #[error("{0:?} is not a port; use a number from 1 to 65535")]
    Port(String),
    /// A URL of another kind.
    #[error("the scheme of {0:?} is unknown; use a host name, or an http, https or ssh URL")]
    Scheme(String),
}

/// Parses entries separated by commas.
///
/// # Errors
/// [`EntryError`] about the first invalid one.
pub fn parse(text: &str) -> Result<Vec<Entry>, EntryError> {
    let malformed = || EntryError::Host(HostlistError::Malformed(shown(text)));
    let mut entries = Vec::new();
    for item in split_outside_brackets(text).ok_or_else(malformed)? {
        entries.extend(one(item.trim())?);
        // What follows is not watched anyway.
        if entries.len() > MAX_HOSTS {
            break;
        }
    }
    Ok(entries)
}

/// Parses an entry, which is several machines if it has ranges.
fn one(item: &str) -> Result<Vec<Entry>, EntryError> {
    if item.is_empty() {
        return Err(EntryError::Missing(shown(item)));
    }
    if item.contains(char::is_whitespace) {
        return Err(EntryError::Space(shown(item)));
    }
    let (address, keeps_port) = match item.split_once("://") {
        None => (item, true),
        // The port belongs to nvgpu's agent, not to SSH.
        Some(("http" | "https", rest)) => (rest.split(['/', '?']).next().unwrap_or_default(), false),
        Some(("ssh", rest)) => (rest.split('/').next().unwrap_or_default(), true),
        Some(_) => return Err(EntryError::Scheme(shown(item))),
    };
    let (user, host) = match address.rsplit_once('@') {
        Some((user, host)) => (Some(login(user)?), host),
        None => (None, address),
    };
    let (host, port) = host_and_port(host)?;
    let port = port.filter(|_| keeps_port);
    let is_here = user.is_none()
        && port.is_none()
        && ["self", "localhost"].iter().any(|name| name.eq_ignore_ascii_case(host));
    if is_here {
        return Ok(vec![Entry { host: localhost(), target: Target::ThisMachine }]);
    }
    let hosts = expand(host)?;
    if hosts.is_empty() {
        return Err(EntryError::Missing(shown(item)));
    }
    let entry = |host: NodeName| {
        let target = SshTarget { destination: host.to_string(), user: user.clone(), port };
        Entry { host, target: Target::Ssh(target) }
    };
    Ok(hosts.into_iter().map(entry).collect())
}

/// Describes an invalid name or range.
fn invalid(error: &HostlistError) -> String {
    match error {
        HostlistError::Malformed(text) => {
            format!("{text:?} is not a host or a range of hosts; write for example gpu[01-08]")
        }
        HostlistError::TooMany => format!("the ranges stand for more than {MAX_NODES} hosts; shorten them"),
        HostlistError::Name(IdError::NodeName(name) | IdError::JobId(name)) => format!(
            "{name:?} is not a host name; use letters, digits, '.', '_' and '-', the first a letter or digit"
        ),
    }
}

/// Splits off the port, which follows the last colon.
fn host_and_port(address: &str) -> Result<(&str, Option<u16>), EntryError> {
    let unbracketed = address.trim_start_matches('[').split(']').next().unwrap_or_default();
    if unbracketed.parse::<Ipv6Addr>().is_ok() {
        return Err(EntryError::Ipv6(shown(address)));
    }
    let Some((host, port)) = address.rsplit_once(':') else { return Ok((address, None)) };
    // `parse` alone would accept a sign.
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| is_number && *port > 0);
    let port = port.ok_or_else(|| EntryError::Port(shown(address.rsplit(':').next().unwrap_or_default())))?;
    Ok((host, Some(port)))
}

/// Validates a login name, which is an argument of `ssh`.
fn login(user: &str) -> Result<String, EntryError> {
    let is_valid = (1..=64).contains(&user.len())
        && !user.starts_with('-')
        && user.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'@'));
    if is_valid { Ok(user.to_owned()) } else { Err(EntryError::User(shown(user))) }
}

fn localhost() -> NodeName {
    NodeName::new("localhost").expect("a valid name")
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as `ssh` accepts them; `-` is this machine.
    fn parsed(text: &str) -> Result<Vec<String>, EntryError> {
        let entry = |entry: Entry| match entry.target {
            Target::ThisMachine => "-".to_owned(),
            Target::Ssh(target) => target.to_string(),
        };
        Ok(parse(text)?.into_iter().map(entry).collect())
    }

    #[test]
    fn an_entry_has_a_host_and_may_have_a_user_and_a_port() {
        for (text, targets) in [
            ("gpu1", &["gpu1"][..]),
            ("192.168.0.1", &["192.168.0.1"]),
            ("alice@gpu1:2222", &["ssh://alice@gpu1:2222"]),
            ("alice@corp@gpu1", &["alice@corp@gpu1"]),
            ("gpu1, bob@gpu2", &["gpu1", "bob@gpu2"]),
            ("bob@gpu[08-10]:22", &["ssh://bob@gpu08:22", "ssh://bob@gpu09:22", "ssh://bob@gpu10:22"]),
            ("gpu[1,3],login", &["gpu1", "gpu3", "login"]),
            ("ssh://alice@gpu1:2222/", &["ssh://alice@gpu1:2222"]),
        ] {
            assert_eq!(parsed(text).unwrap(), targets, "{text}");
        }
    }

    #[test]
    fn the_port_of_an_agent_is_not_that_of_ssh() {
        assert_eq!(parsed("http://node02:1080").unwrap(), ["node02"]);
        assert_eq!(parsed("https://node02/gpu_status?x=1").unwrap(), ["node02"]);
        assert_eq!(parsed("http://localhost:1080").unwrap(), ["-"]);
    }

    #[test]
    fn this_machine_has_two_names_unless_another_port_or_user_is_given() {
        assert_eq!(parsed("self,localhost").unwrap(), ["-", "-"]);
        assert_eq!(parsed("localhost:2222").unwrap(), ["ssh://localhost:2222"], "the end of a tunnel");
        assert_eq!(parsed("root@localhost").unwrap(), ["root@localhost"]);
    }

    #[test]
    fn an_invalid_entry_is_refused_with_what_to_write_instead() {
        for (text, message) in [
            ("gpu[1-", "is not a host or a range of hosts"),
            ("gpu[1-99999]", "stand for more than 65536 hosts"),
            ("gpu_1*", "is not a host name; use letters"),
            ("gpu1 gpu2", "one host per line"),
            ("gpu1,,gpu2", "a host name is missing"),
            ("alice@", "a host name is missing"),
            ("::1", "IPv6"),
            ("[2001:db8::7]:22", "IPv6"),
            ("gpu1:0", "not a port"),
            ("gpu1:+22", "not a port"),
            ("gpu1:70000", "not a port"),
            ("ftp://gpu1", "scheme"),
            ("-oProxyCommand=x@gpu1", "not a login name"),
            ("-oProxyCommand=x", "letters, digits"),
            ("gpu[3-1]", "is not a host or a range of hosts"),
            ("gpu[1-99999999]", "65536"),
            ("gpu1;reboot", "letters, digits"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
