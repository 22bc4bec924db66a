//! Connects within time limits, and verifies the host before anything else is sent.

use super::failure::{self, unreachable};
use super::link::Link;
use crate::LaunchError;
use crate::known_hosts::{HostId, KnownHosts, Verdict};
use crate::login_error;
use crate::ssh_config::HostSettings;
use rustix::net::sockopt;
use sha2::{Digest, Sha256};
use ssh2::MethodType;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const RESOLVE_LIMIT: Duration = Duration::from_secs(5);
const TCP_LIMIT: Duration = Duration::from_secs(8);
/// Time after which the client speaks first.
const GREETING_LIMIT: Duration = Duration::from_secs(1);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const FILES_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent reads of known hosts. Each takes a thread, and may hang.
const MAX_READS: usize = 8;
static READS: Semaphore = Semaphore::const_new(MAX_READS);
/// Maximum number of concurrent look-ups of names. Each takes a thread until the resolver gives up, after minutes perhaps.
const MAX_LOOKUPS: usize = 32;
static LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);
/// The kernel closes a connection after this long without an acknowledgement.
const ACK_LIMIT: Duration = Duration::from_secs(15);
/// Hardware AES where both sides have it, and far more bytes between key exchanges than ChaCha20.
const CIPHERS: &str = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,\
    aes128-ctr,aes192-ctr,aes256-ctr";

/// Host keys accepted on first use by this process, because the user's configuration accepts new hosts.
/// They are not stored, but a second key for the same host counts as changed.
#[derive(Debug, Default)]
pub struct TrustedOnce(Mutex<HashMap<String, Vec<u8>>>);

impl TrustedOnce {
    /// Returns whether `key` is the first or the same key of this host.
    fn accepts(&self, host: &HostId, key: &[u8]) -> bool {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.entry(host.display().to_owned()).or_insert_with(|| key.to_vec()) == key
    }
}

/// Connects, exchanges keys and verifies the host.
pub(super) async fn connect(settings: &HostSettings, trusted: &TrustedOnce) -> Result<Link, LaunchError> {
    let id = match &settings.host_key_alias {
        Some(alias) => HostId::alias(alias),
        None => HostId::new(&settings.hostname, settings.port),
    };
    let (known, socket) = tokio::try_join!(known_hosts(&settings.known_hosts), dial(settings))?;
    let link = Link::new(socket).map_err(|error| failure::handshake(&error))?;
    let session = link.session();
    let prefer = |method, list: &str| session.method_pref(method, list).map_err(|e| failure::handshake(&e));
    prefer(MethodType::HostKey, &known.algorithms(&id))?;
    prefer(MethodType::CryptCs, CIPHERS)?;
    prefer(MethodType::CryptSc, CIPHERS)?;
    let handshake = async {
        if let Some(limited) =
            greeting(link.socket()).await.and_then(|said| login_error::limited(&settings.host, &said))
        {
            return Err(limited);
        }
        let handshake = link.drive(|session| session.clone().handshake());
        handshake.await.map_err(|error| failure::handshake(&error))
    };
    let silent = |_| unreachable("the host accepted the connection but did not speak SSH within 10 s");
    timeout(HANDSHAKE_LIMIT, handshake).await.map_err(silent)??;
    verify_host_key(&link, &known, &id, settings, trusted)?;
    Ok(link)
}

/// Waits for the first bytes of the host, which stay to be read. Returns them unless they begin a greeting of SSH; none if it
/// closed the connection.
async fn greeting(socket: &TcpStream) -> Option<String> {
    let mut bytes = [0; 256];
    // A reset is the end of the connection, too. A host may also wait for the client to speak first.
    let count = timeout(GREETING_LIMIT, socket.peek(&mut bytes)).await.ok()?.unwrap_or(0);
    let said = &bytes[..count];
    let is_ssh = count > 0 && (said.starts_with(SSH) || SSH.starts_with(said));
    (!is_ssh).then(|| String::from_utf8_lossy(said).into_owned())
}

/// The beginning of a greeting of SSH.
const SSH: &[u8] = b"SSH-";

/// Reads the known_hosts files; a missing one is empty.
async fn known_hosts(files: &[PathBuf]) -> Result<KnownHosts, LaunchError> {
    let files = files.to_vec();
    let read = async {
        let permit = READS.acquire().await;
        let read = spawn_blocking(move || {
            // Kept by a read that hangs.
            let _permit = permit;
            let mut known = KnownHosts::default();
            for file in files {
                if let Ok(bytes) = std::fs::read(&file) {
                    known.read(&file, &bytes);
                }
            }
            known
        });
        read.await.unwrap_or_default()
    };
    let slow = |_| {
        unreachable("the known_hosts files could not be read within 5 s; is the home directory reachable?")
    };
    timeout(FILES_LIMIT, read).await.map_err(slow)
}

async fn dial(settings: &HostSettings) -> Result<TcpStream, LaunchError> {
    let (host, port) = (settings.hostname.as_str(), settings.port);
    let addresses = match timeout(RESOLVE_LIMIT, look_up(host, port)).await {
        Err(_) => return Err(unreachable(format!("the name {host} could not be looked up within 5 s"))),
        Ok(Err(error)) => return Err(unreachable(format!("the name {host} was not found: {error}"))),
        Ok(Ok(addresses)) => addresses,
    };
    let mut last = unreachable(format!("the name {host} has no address"));
    for address in addresses.into_iter().take(4) {
        match dial_one(address).await {
            Ok(socket) => return Ok(socket),
            Err(why) => last = unreachable(format!("could not connect to {host} port {port}: {why}")),
        }
    }
    Err(last)
}

/// Returns the addresses of a name. An address needs no resolver.
async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (permit, host) = (LOOKUPS.acquire().await, host.to_owned());
    let found = spawn_blocking(move || {
        // Kept by a look-up that hangs.
        let _permit = permit;
        (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
    });
    found.await.map_err(io::Error::other)?
}

async fn dial_one(address: SocketAddr) -> Result<TcpStream, String> {
    let socket = match timeout(TCP_LIMIT, TcpStream::connect(address)).await {
        Err(_) => return Err("no response within 8 s".to_owned()),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(socket)) => socket,
    };
    // Each of these only detects a dead peer sooner; the session's own deadlines hold without them.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_tcp_user_timeout(&socket, ACK_LIMIT.as_millis() as u32);
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, ACK_LIMIT);
    Ok(socket)
}

/// Accepts only keys that the user's files vouch for.
fn verify_host_key(
    link: &Link,
    known: &KnownHosts,
    id: &HostId,
    settings: &HostSettings,
    trusted: &TrustedOnce,
) -> Result<(), LaunchError> {
    let Some((key, _)) = link.session().host_key() else {
        return Err(unreachable("the host presented no host key"));
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match known.verdict(id, key, now) {
        Verdict::Known => Ok(()),
        Verdict::Unknown if settings.accept_unknown && trusted.accepts(id, key) => Ok(()),
        verdict => Err(login_error::host_key(&verdict, id.display(), &fingerprint(key), settings)),
    }
}

/// The key's fingerprint in the format of `ssh`.
fn fingerprint(key: &[u8]) -> String {
    use base64ct::{Base64Unpadded, Encoding};
    format!("SHA256:{}", Base64Unpadded::encode_string(&Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_accepted_on_first_use_keeps_its_key_for_the_process() {
        let trusted = TrustedOnce::default();
        let (a, b) = (HostId::new("a", 22), HostId::new("b", 22));
        assert!(trusted.accepts(&a, b"key") && trusted.accepts(&b, b"other"));
        assert!(trusted.accepts(&a, b"key"));
        assert!(!trusted.accepts(&a, b"other"));
    }

    #[test]
    fn a_fingerprint_is_written_as_ssh_writes_it() {
        assert_eq!(fingerprint(b""), "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU");
    }

    /// The runtime has 512 threads for everything that waits for disks, and each node is retried every minute.
    #[tokio::test]
    async fn t18_known_hosts_whose_reads_hang_take_few_threads() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("known_hosts");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        tokio::time::pause();
        let attempt = |_| {
            let pipe = pipe.clone();
            tokio::spawn(async move { known_hosts(&[pipe]).await.is_err() })
        };
        let attempts: Vec<_> = (0..3 * MAX_READS).map(attempt).collect();
        // Each of them waits.
        for _ in 0..3 * MAX_READS {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(2 * FILES_LIMIT).await;
        for attempt in attempts {
            assert!(attempt.await.unwrap());
        }
        assert_eq!(READS.available_permits(), 0, "the reads still hang");
        tokio::time::resume();
        while READS.available_permits() < MAX_READS {
            // Ends the reads that have begun: some threads may not have opened the pipe yet.
            drop(std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(known_hosts(&[folder.path().join("none")]).await.is_ok());
    }
}
