//! Subordinate uids (`subuid(5)`): by `newuidmap`, a user may act with thousands of uids, which must not multiply their
//! limits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time after which the file is read again.
const KEEP: Duration = Duration::from_secs(60);
/// Maximum number of bytes that are read of it: 100,000 users.
const MAX_BYTES: u64 = 4 << 20;

/// The subordinate uids that a file grants to users; by default none.
#[derive(Debug, Default)]
pub struct SubordinateUids {
    path: PathBuf,
    read: Mutex<Option<(Instant, Vec<Granted>)>>,
}

/// Uids that a line grants.
#[derive(Debug)]
struct Granted {
    first: u32,
    last: u32,
    /// The first uid of the first line of the same user.
    representative: u32,
}

impl SubordinateUids {
    /// Those of this machine.
    pub fn of_this_machine() -> Self {
        Self::at("/etc/subuid".into())
    }

    /// Those of a file.
    pub fn at(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// Returns one of the subordinate uids that belong to the same user as `uid`, always the same; `uid` itself if it is
    /// granted to nobody. Uids that a directory service grants are not known.
    pub fn representative(&self, uid: u32) -> u32 {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_none_or(|(at, _)| at.elapsed() >= KEEP) {
            *read = Some((Instant::now(), parsed(&self.text())));
        }
        let mut granted = read.iter().flat_map(|(_, granted)| granted);
        let of_same_user = granted.find(|granted| (granted.first..=granted.last).contains(&uid));
        of_same_user.map_or(uid, |granted| granted.representative)
    }

    /// The text of the file; empty if there is none, as on machines without user namespaces.
    fn text(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(&self.path) {
            let _ = file.take(MAX_BYTES).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Parses lines of `USER:FIRST:COUNT`; others are left out.
fn parsed(text: &str) -> Vec<Granted> {
    let mut first_of = BTreeMap::new();
    let granted = text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let user = fields.next()?;
        let (first, count) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
        let last = first.saturating_add(count.checked_sub(1)?);
        Some(Granted { first, last, representative: *first_of.entry(user).or_insert(first) })
    });
    granted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test(start_paused = true)]
    async fn the_uids_that_a_user_was_granted_have_one_representative() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subuid");
        let uids = SubordinateUids::at(path.clone());
        assert_eq!(uids.representative(100_007), 100_007, "there is no file");
        let text = "mallory:100000:65536\nbob:165536:65536\nmallory:500000:10\nx:1\ny:4294967295:9\nz:7:0\n";
        fs::write(&path, text).unwrap();
        tokio::time::advance(KEEP).await;
        for (uid, representative) in [
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (231_071, 165_536),
            (500_009, 100_000),
            (500_010, 500_010),
            (7, 7),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(uids.representative(uid), representative, "{uid}");
        }
    }
}
