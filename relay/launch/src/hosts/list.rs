//! Parses files that list machines, in nodeglass's own format and in the formats of nvgpu and GPU Cluster Status
//! Monitor, and finds the entry of this machine.

use super::entry::{self, Entry, MAX_HOSTS};
use crate::target::Target;
use nodeglass_protocol::{NodeName, Text};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Maximum number of problems that are kept; the others are counted.
const MAX_PROBLEMS: usize = 64;
/// Maximum length of a group's name, in characters.
const MAX_GROUP: usize = 64;

/// A machine that is watched whether or not a job runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHost {
    /// Its name on the page.
    pub node: NodeName,
    /// Its group, if it has one.
    pub group: Option<Text>,
    /// The target of its probe.
    pub target: Target,
}

/// Machines in the order of their lines, and what was wrong with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    /// The machines; each name is listed once.
    pub hosts: Vec<ListedHost>,
    /// Entries that are not watched, with the reasons.
    pub problems: Problems,
}

/// Problems of a list, of bounded number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    kept: Vec<Text>,
    more: usize,
}

impl Problems {
    fn push(&mut self, place: &Place, why: impl fmt::Display) {
        match self.kept.len() {
            MAX_PROBLEMS.. => self.more += 1,
            _ => self.kept.push(Text::new(format!("{place}: {why}"))),
        }
    }

    /// Returns up to `limit` of them, and after these the number of those left out, with where to see them.
    pub fn summary(&self, limit: usize, others: &str) -> Vec<Text> {
        let mut shown: Vec<Text> = self.kept.iter().take(limit).cloned().collect();
        match self.kept.len() + self.more - shown.len() {
            0 => {}
            1 => shown.push(Text::new(format!("and 1 more problem in the list of machines; {others}"))),
            more => {
                shown.push(Text::new(format!("and {more} more problems in the list of machines; {others}")))
            }
        }
        shown
    }
}

/// The place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Flag,
    Line(PathBuf, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--host"),
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// This machine, as entries may name it.
#[derive(Clone, Debug)]
pub struct ThisMachine {
    /// `uname -n`.
    pub name: NodeName,
    /// Returns whether an address is one of this machine's.
    pub has_address: fn(IpAddr) -> bool,
}

impl ThisMachine {
    fn is_meant(&self, host: &NodeName) -> bool {
        let own = self.name.as_str();
        let first_label = own.split('.').next().unwrap_or(own);
        let is_own_name = [own, first_label].iter().any(|name| name.eq_ignore_ascii_case(host.as_str()));
        is_own_name || host.as_str().parse().is_ok_and(self.has_address)
    }
}

/// Collects machines from flags and a file.
pub struct Builder<'a> {
    this_machine: &'a ThisMachine,
    list: HostList,
    /// The place where each name was listed first, in lower case: host names ignore it.
    places: HashMap<String, Place>,
    group: Option<Text>,
    is_full: bool,
}

impl<'a> Builder<'a> {
    /// An empty list.
    pub fn new(this_machine: &'a ThisMachine) -> Self {
        Self { this_machine, list: HostList::default(), places: HashMap::new(), group: None, is_full: false }
    }

    /// Adds entries of the command line.
    pub fn flags(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| self.add(entry.clone(), &Place::Flag));
    }

    /// Adds the entries of a file.
    pub fn file(&mut self, path: &Path, text: &str) {
        self.group = None;
        let mut is_agents = false;
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            let place = Place::Line(path.to_owned(), number);
            let line = line.split('#').next().unwrap_or_default().trim();
            match agents(line) {
                Some(items) if !is_agents => is_agents = self.agents(items, &place),
                _ if is_agents => is_agents = self.agents(line, &place),
                _ => self.line(line, &place),
            }
        }
    }

    /// The list, and what is wrong with it.
    pub fn finish(self) -> HostList {
        self.list
    }

    /// Adds a line outside of nvgpu's `AGENTS`.
    fn line(&mut self, line: &str, place: &Place) {
        if line.is_empty() || is_assignment(line) {
            return;
        }
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => self.heading(name.trim(), place),
            None => self.entries(line, place),
        }
    }

    fn heading(&mut self, name: &str, place: &Place) {
        let problem = match name {
            "" => "the group has no name; write [name]".to_owned(),
            _ if name.contains(['[', ']']) => {
                format!("{name:?} is not a group's name; omit the brackets in it")
            }
            _ if name.chars().count() > MAX_GROUP => {
                format!("the group's name is longer than {MAX_GROUP} characters")
            }
            _ => {
                self.group = Some(Text::new(name));
                return;
            }
        };
        // Its machines do not belong to the group above it either.
        self.group = None;
        self.list.problems.push(place, problem);
    }

    fn entries(&mut self, text: &str, place: &Place) {
        // Ranges of a long file are expanded until the list is full.
        if self.is_full {
            return;
        }
        match entry::parse(text) {
            Ok(entries) => entries.into_iter().for_each(|entry| self.add(entry, place)),
            Err(error) => self.list.problems.push(place, error),
        }
    }

    /// Adds strings of a Python list; returns whether it continues on the next line.
    fn agents(&mut self, items: &str, place: &Place) -> bool {
        let mut rest = items;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            let Some(first) = rest.chars().next() else { return true };
            if matches!(first, ']' | ')') {
                return false;
            }
            let quoted = rest.strip_prefix('u').unwrap_or(rest);
            let string =
                ['\'', '"'].into_iter().find_map(|quote| quoted.strip_prefix(quote)?.split_once(quote));
            let Some((string, after)) = string else {
                let why = format!("expected a host in quotes instead of {:?}", shown(rest));
                self.list.problems.push(place, why);
                // The rest cannot be split into strings.
                return !rest.ends_with([']', ')']);
            };
            self.entries(string.trim(), place);
            rest = after;
        }
    }

    fn add(&mut self, entry: Entry, place: &Place) {
        let is_plain = match &entry.target {
            Target::ThisMachine => true,
            Target::Ssh(target) => {
                target.user.is_none() && target.port.is_none() && self.this_machine.is_meant(&entry.host)
            }
        };
        let (node, target) = match is_plain {
            true => (self.this_machine.name.clone(), Target::ThisMachine),
            false => (entry.host, entry.target),
        };
        let key = node.as_str().to_ascii_lowercase();
        if let Some(first) = self.places.get(&key) {
            return self.repeated(&node, &target, &first.clone(), place);
        }
        if self.list.hosts.len() >= MAX_HOSTS {
            if !std::mem::replace(&mut self.is_full, true) {
                let why = format!(
                    "{node} and what follows is not watched: a list has at most {MAX_HOSTS} machines"
                );
                self.list.problems.push(place, why);
            }
            return;
        }
        self.places.insert(key, place.clone());
        self.list.hosts.push(ListedHost { node, group: self.group.clone(), target });
    }

    fn repeated(&mut self, node: &NodeName, target: &Target, first: &Place, place: &Place) {
        let known =
            self.list.hosts.iter().find(|host| host.node.as_str().eq_ignore_ascii_case(node.as_str()));
        let why = match (known.map(|known| &known.target), target) {
            (Some(Target::Ssh(known)), Target::Ssh(again))
                if (&known.user, known.port) != (&again.user, again.port) =>
            {
                format!(
                    "{again} is not watched, because {known} in {first} has the same name; to watch both, give each a `Host` \
                 of its own in ~/.ssh/config and list those"
                )
            }
            _ => format!("{node} is listed in {first} already"),
        };
        self.list.problems.push(place, why);
    }
}

/// The items on the line that begins nvgpu's list: `AGENTS = [`.
fn agents(line: &str) -> Option<&str> {
    line.strip_prefix("AGENTS")?.trim_start().strip_prefix('=')?.trim_start().strip_prefix(['[', '('])
}

/// Another setting of the file in which nvgpu keeps its list, as `DEBUG = True`.
fn is_assignment(line: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    line.split_once('=').is_some_and(|(name, _)| is_name(name.trim_end()))
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
