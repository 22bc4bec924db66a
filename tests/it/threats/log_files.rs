//! A guest who can write to the folder of a shared log cannot make the owner read any other file for them.

use anyhow::{Result, anyhow, ensure};
use nodeglass_logfile::{Distrust, LogFile, OpenError};
use nodeglass_protocol::request::Audience;
use nodeglass_tests::other_user;
use nodeglass_tests::skip::skip;
use rustix::fs::{Gid, Uid};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The owner of the job, the guest, and the group of the project to which both belong. These users
/// need not exist.
const OWNER: u32 = 7_101;
const GUEST: u32 = 7_102;
const PROJECT: u32 = 7_200;
const SECRET: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n";

/// Runs a closure as another user, who is in the group of the project.
fn as_user<T: Send + 'static>(uid: u32, act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let thread = std::thread::spawn(move || {
        // Only this thread changes its user, and it ends here.
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&[Gid::from_raw(PROJECT)])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
        anyhow::Ok(act())
    });
    thread.join().map_err(|_| anyhow!("what user {uid} does failed"))?
}

/// The owner's home directory with a key, and a project folder in which the owner's job writes its log.
struct Site {
    _folder: tempfile::TempDir,
    home: PathBuf,
    project: PathBuf,
}

impl Site {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let base = folder.path().canonicalize()?;
        fs::set_permissions(&base, PermissionsExt::from_mode(0o755))?;
        let site = Self { _folder: folder, home: base.join("home"), project: base.join("project") };
        site.folder(&site.home, OWNER, OWNER, 0o700)?;
        site.folder(&site.home.join(".ssh"), OWNER, OWNER, 0o700)?;
        site.file(&site.home.join(".ssh/id_ed25519"), 0o600, SECRET)?;
        site.folder(&site.project, 0, PROJECT, 0o2775)?;
        site.file(&site.log(), 0o644, "epoch 1\n")?;
        Ok(site)
    }

    fn log(&self) -> PathBuf {
        self.project.join("slurm-101.out")
    }

    fn folder(&self, path: &Path, uid: u32, gid: u32, mode: u32) -> Result<()> {
        fs::create_dir(path)?;
        chown(path, Some(uid), Some(gid))?;
        Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
    }

    /// A file that belongs to the owner.
    fn file(&self, path: &Path, mode: u32, text: &str) -> Result<()> {
        fs::write(path, text)?;
        chown(path, Some(OWNER), Some(OWNER))?;
        Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
    }

    /// Reads it as the owner's relay or probe does for a guest.
    fn read(&self, path: &Path) -> Result<Result<String, OpenError>> {
        let path = path.to_owned();
        as_user(OWNER, move || {
            let file = LogFile::open(&path, Audience::Guest { since_s: 0 })?;
            Ok(String::from_utf8_lossy(&file.read(0, file.size).map_err(OpenError::Io)?).into_owned())
        })
    }

    fn refuses(&self, path: &Path, expected: &[Distrust]) -> Result<()> {
        match self.read(path)? {
            Err(OpenError::Distrusted(why)) if expected.contains(&why) => Ok(()),
            other => Err(anyhow!("{} was expected to be refused, but: {other:?}", path.display())),
        }
    }

    fn shows(&self, path: &Path) -> Result<()> {
        let shown = self.read(path)?;
        ensure!(matches!(&shown, Ok(text) if text == "epoch 1\n"), "{}: {shown:?}", path.display());
        Ok(())
    }
}

fn site() -> Result<Option<Site>> {
    if let Some(why) = other_user::why_not() {
        skip(&why);
        return Ok(None);
    }
    Site::new().map(Some)
}

#[test]
fn t09_a_guest_cannot_replace_a_shared_log_by_a_link() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    site.shows(&site.log())?;
    let (log, key) = (site.log(), site.home.join(".ssh/id_ed25519"));
    as_user(GUEST, move || {
        fs::rename(&log, log.with_extension("moved"))?;
        symlink(key, log)
    })??;
    site.refuses(&site.log(), &[Distrust::ForeignLink])?;
    // A folder of the guest that contains the log's name, and one that is a link.
    let (project, home) = (site.project.clone(), site.home.clone());
    as_user(GUEST, move || {
        fs::create_dir(project.join("own"))?;
        symlink(home.join(".ssh/id_ed25519"), project.join("own/slurm-101.out"))?;
        symlink(home.join(".ssh"), project.join("run"))
    })??;
    site.refuses(&site.project.join("own/slurm-101.out"), &[Distrust::ForeignLink])?;
    site.refuses(&site.project.join("run/id_ed25519"), &[Distrust::ForeignLink])
}

#[test]
fn t09_a_guest_cannot_rename_private_files_of_the_owner_into_a_shared_log() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    // Files of the owner within the project that the guest can rename but not read.
    site.file(&site.project.join("notes"), 0o600, SECRET)?;
    site.folder(&site.project.join("private"), OWNER, OWNER, 0o700)?;
    site.file(&site.project.join("private/train.log"), 0o644, SECRET)?;
    symlink(&site.home, site.project.join("home"))?;
    std::os::unix::fs::lchown(site.project.join("home"), Some(OWNER), Some(OWNER))?;
    site.file(&site.home.join("train.log"), 0o644, SECRET)?;
    site.folder(&site.project.join("run"), OWNER, OWNER, 0o755)?;
    site.file(&site.project.join("run/train.log"), 0o644, "epoch 1\n")?;
    let (log, in_folder) = (site.log(), site.project.join("run/train.log"));
    site.shows(&in_folder)?;

    let project = site.project.clone();
    as_user(GUEST, move || {
        fs::rename(project.join("notes"), project.join("slurm-101.out"))?;
        fs::rename(project.join("run"), project.join("run.1"))?;
        fs::rename(project.join("private"), project.join("run"))
    })??;
    site.refuses(&log, &[Distrust::Replaceable])?;
    site.refuses(&in_folder, &[Distrust::Replaceable])?;
    let project = site.project.clone();
    as_user(GUEST, move || {
        fs::rename(project.join("run"), project.join("run.2"))?;
        fs::rename(project.join("home"), project.join("run"))
    })??;
    site.refuses(&in_folder, &[Distrust::Replaceable])
}

#[test]
fn t09_a_hard_link_to_a_file_of_the_owner_is_not_its_log() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    // As a guest could if the kernel does not protect hard links; root always can.
    fs::remove_file(site.log())?;
    fs::hard_link(site.home.join(".ssh/id_ed25519"), site.log())?;
    site.refuses(&site.log(), &[Distrust::SeveralNames])?;
    // The old name is removed, as by an editor that writes a new file and renames it.
    fs::remove_file(site.home.join(".ssh/id_ed25519"))?;
    site.refuses(&site.log(), &[Distrust::Replaceable])?;
    // Nor is a second name of a link of the owner.
    fs::remove_file(site.log())?;
    symlink(site.home.join(".ssh"), site.home.join("keys"))?;
    std::os::unix::fs::lchown(site.home.join("keys"), Some(OWNER), Some(OWNER))?;
    fs::hard_link(site.home.join("keys"), site.project.join("run"))?;
    site.refuses(&site.project.join("run/id_ed25519"), &[Distrust::SeveralNames])
}

#[test]
fn t09_a_guest_is_shown_no_file_of_another_user() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    let log = site.log();
    as_user(GUEST, move || {
        fs::rename(&log, log.with_extension("moved"))?;
        fs::write(log, "what the guest says that the job says\n")
    })??;
    site.refuses(&site.log(), &[Distrust::ForeignFile])
}

#[test]
fn logs_in_usual_places_are_shown_to_guests() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    // In a private home directory behind a link of root, as when homes are on another file system.
    site.file(&site.home.join("job.out"), 0o600, "epoch 1\n")?;
    let linked = site.home.with_file_name("linked");
    symlink(&site.home, &linked)?;
    site.shows(&linked.join("job.out"))?;
    // In scratch space, through a link of the owner.
    let scratch = site.home.with_file_name("scratch");
    site.folder(&scratch, 0, 0, 0o1777)?;
    site.folder(&scratch.join("owner"), OWNER, OWNER, 0o700)?;
    site.file(&scratch.join("owner/job.out"), 0o600, "epoch 1\n")?;
    for link in [site.home.join("scratch"), scratch.join("link")] {
        symlink(scratch.join("owner"), &link)?;
        std::os::unix::fs::lchown(&link, Some(OWNER), Some(OWNER))?;
        site.shows(&link.join("job.out"))?;
    }
    // In a project whose folder belongs to another member.
    let of_member = site.project.join("member");
    site.folder(&of_member, GUEST, PROJECT, 0o2775)?;
    site.file(&of_member.join("job.out"), 0o644, "epoch 1\n")?;
    site.shows(&of_member.join("job.out"))?;
    // In a project that only its members can access, with a group that can read the owner's files.
    let members = site.home.with_file_name("members");
    site.folder(&members, 0, PROJECT, 0o2770)?;
    site.file(&members.join("job.out"), 0o640, "epoch 1\n")?;
    chown(members.join("job.out"), None, Some(PROJECT))?;
    site.shows(&members.join("job.out"))?;
    // In a folder whose ACL gives another user read access only.
    let read = site.home.with_file_name("read");
    site.folder(&read, OWNER, OWNER, 0o750)?;
    site.file(&read.join("job.out"), 0o640, "epoch 1\n")?;
    if let Err(why) = grant(&read, 0o5, 0o5) {
        skip(&format!("no ACL can be set: {why}"));
        return Ok(());
    }
    site.shows(&read.join("job.out"))
}

/// Grants the owner and the guest permissions by a POSIX ACL, as `setfacl -m u:USER:…` does. The
/// group gets none.
fn grant(path: &Path, owner: u16, guest: u16) -> rustix::io::Result<()> {
    const NOBODY: u32 = u32::MAX;
    // The tags of linux/posix_acl.h: owner, user, group, mask, others.
    let users = [(2, owner, OWNER), (2, guest, GUEST)];
    let rest = [(4, 0, NOBODY), (16, owner | guest, NOBODY), (32, 0, NOBODY)];
    let entries = [(1, 7, NOBODY)].into_iter().chain(users).chain(rest);
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty())
}

#[test]
fn t09_a_user_whom_an_acl_lets_write_cannot_choose_what_a_guest_reads() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    // The group bits of these folders are the ACL's mask; the groups are root's and the owner's own.
    for (name, owner, secret) in [("of_root", 0, 0o600), ("of_owner", OWNER, 0o640)] {
        let folder = site.home.with_file_name(name);
        site.folder(&folder, owner, owner, 0o770)?;
        if let Err(why) = grant(&folder, 0o7, 0o7) {
            skip(&format!("no ACL can be set: {why}"));
            return Ok(());
        }
        let log = folder.join("job.out");
        site.file(&log, 0o644, "epoch 1\n")?;
        site.file(&folder.join("notes"), secret, SECRET)?;
        site.shows(&log)?;
        let (notes, place) = (folder.join("notes"), log.clone());
        as_user(GUEST, move || {
            ensure!(fs::read(&notes).is_err(), "the guest can read it anyway");
            Ok(fs::rename(notes, place)?)
        })??;
        site.refuses(&log, &[Distrust::Replaceable])?;
        // Nor do the group bits of a file with an ACL show who may read it.
        grant(&log, 0o4, 0)?;
        site.refuses(&log, &[Distrust::Replaceable])?;
    }
    // The folder belongs to a group that the ACL of the file excludes.
    let log = site.log();
    chown(&log, None, Some(PROJECT))?;
    grant(&log, 0o6, 0)?;
    let read = log.clone();
    ensure!(as_user(GUEST, move || fs::read(read).is_err())?, "the guest can read it anyway");
    site.refuses(&log, &[Distrust::Replaceable])
}

#[test]
fn t09_the_owner_of_a_folder_is_not_assumed_to_be_in_its_group() -> Result<()> {
    const OTHERS: u32 = 7_300;
    let Some(site) = site()? else { return Ok(()) };
    // As below a setgid folder: the guest's folder and the owner's files get a group that the guest lacks.
    let folder = site.home.with_file_name("guests");
    site.folder(&folder, GUEST, OTHERS, 0o2775)?;
    let log = folder.join("job.out");
    site.file(&log, 0o640, "epoch 1\n")?;
    site.file(&folder.join("notes"), 0o640, SECRET)?;
    for path in [log.clone(), folder.join("notes")] {
        chown(path, None, Some(OTHERS))?;
    }
    let (notes, place) = (folder.join("notes"), log.clone());
    as_user(GUEST, move || {
        ensure!(fs::read(&notes).is_err(), "the guest can read it anyway");
        Ok(fs::rename(notes, place)?)
    })??;
    site.refuses(&log, &[Distrust::Replaceable])
}

/// For any winner of the race between the walk and the read, the secret is never read.
#[test]
fn t09_racing_a_log_against_a_link_leaks_no_secret() -> Result<()> {
    let Some(site) = site()? else { return Ok(()) };
    static OVER: AtomicBool = AtomicBool::new(false);
    let (project, key) = (site.project.clone(), site.home.join(".ssh/id_ed25519"));
    site.folder(&site.project.join("run"), OWNER, PROJECT, 0o755)?;
    site.file(&site.project.join("run/id_ed25519"), 0o644, "epoch 1\n")?;
    let swapping = std::thread::spawn(move || {
        as_user(GUEST, move || {
            let (log, link) = (project.join("slurm-101.out"), project.join("link"));
            let (run, keys) = (project.join("run"), project.join("keys"));
            symlink(&key, &link)?;
            symlink(key.parent().unwrap_or(&key), &keys)?;
            let exchange = |one: &Path, other: &Path| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags)
            };
            while !OVER.load(Ordering::Relaxed) {
                exchange(&log, &link)?;
                exchange(&run, &keys)?;
            }
            std::io::Result::Ok(())
        })
    });
    let (mut shown, mut refused) = (0, 0);
    let mut looks = 0;
    while (shown == 0 || refused == 0 || looks < 2_000) && looks < 200_000 {
        looks += 1;
        for path in [site.log(), site.project.join("run/id_ed25519")] {
            match site.read(&path)? {
                Ok(text) => {
                    ensure!(text == "epoch 1\n", "what came out: {text}");
                    shown += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    OVER.store(true, Ordering::Relaxed);
    swapping.join().map_err(|_| anyhow!("the guest's thread failed"))???;
    ensure!(shown > 0 && refused > 0, "nothing was exchanged: {shown} shown, {refused} refused");
    Ok(())
}
