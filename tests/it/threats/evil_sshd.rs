//! A host that does not complete an SSH handshake makes a launch fail within its time limit and
//! bounded memory.
//!
//! These are the plain-text parts of the protocol, where an attacker controls every byte; after the
//! key exchange everything is encrypted, and comes only from a host that proved its key.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_launch::ssh_config::Local;
use nodeglass_launch::ssh2::Ssh2Launcher;
use nodeglass_launch::upload::ProbeBinary;
use nodeglass_launch::{LaunchError, Launcher, SshOptions};
use nodeglass_protocol::NodeName;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A launch has a limit of 20 s; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_secs(50);
/// Maximum growth of this process's memory for all launches of a test.
const MEMORY: u64 = 256 << 20;
const BANNER: &[u8] = b"SSH-2.0-OpenSSH_9.6\r\n";

/// Data that a host sends to a client.
type Script = Arc<dyn Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync>;

/// A host on loopback that sends the same to every client and reads nothing; its thread ends with
/// the test's process.
struct EvilSshd {
    port: u16,
    met: Arc<AtomicUsize>,
}

impl EvilSshd {
    fn start(script: Script) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let met = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&met);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let script = Arc::clone(&script);
                std::thread::spawn(move || {
                    let _ = stream.set_write_timeout(Some(Duration::from_secs(60)));
                    let _ = script(&mut stream);
                });
            }
        });
        Ok(Self { port, met })
    }

    /// Launches on it once, and returns the result.
    async fn meet(&self) -> Result<LaunchError> {
        let dir = tempfile::tempdir()?;
        let (config, probe) = (dir.path().join("config"), dir.path().join("node-probe"));
        std::fs::write(&config, format!("Host *\n HostName 127.0.0.1\n Port {}\n", self.port))?;
        std::fs::write(&probe, "a probe")?;
        let launcher = Ssh2Launcher::new(SshOptions {
            probe: ProbeBinary::find(Some(&probe))?,
            relay_id: 1,
            config: Some(config),
            local: Local { agent: None, ..Local::from_env() },
        });
        let node = NodeName::new("evil-01")?;
        let launched = tokio::time::timeout(IN_TIME, launcher.launch(&node)).await;
        match launched.context("it does not end in its time")? {
            Ok(_) => bail!("it was taken for a host"),
            Err(error) => Ok(error),
        }
    }
}

/// A host that sends these bytes, and then waits for the client to disconnect.
fn sends(bytes: Vec<u8>) -> Script {
    Arc::new(move |stream| {
        stream.write_all(&bytes)?;
        wait(stream)
    })
}

/// A host that sends these bytes and disconnects.
fn sends_and_disconnects(bytes: Vec<u8>) -> Script {
    Arc::new(move |stream| stream.write_all(&bytes))
}

/// A host that sends its banner, and then these bytes until the client disconnects.
fn repeats(bytes: Vec<u8>) -> Script {
    Arc::new(move |stream| {
        stream.write_all(BANNER)?;
        loop {
            stream.write_all(&bytes)?;
        }
    })
}

/// Reads until the other side disconnects.
fn wait(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4_096];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

/// The banner and then these bytes.
fn after_banner(bytes: &[u8]) -> Vec<u8> {
    [BANNER, bytes].concat()
}

/// A packet with valid length and padding.
fn packet(payload: &[u8]) -> Vec<u8> {
    let padding = 8 - (payload.len() + 5) % 8 + 4;
    let padding = if padding >= 12 { padding - 8 } else { padding };
    let padding = if (payload.len() + 5 + padding).is_multiple_of(8) { padding } else { padding + 4 };
    raw_packet((payload.len() + 1 + padding) as u32, padding as u8, &[payload, &vec![0; padding]].concat())
}

/// A packet with arbitrary length fields.
fn raw_packet(length: u32, padding: u8, rest: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], &[padding], rest].concat()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// A KEXINIT that libssh2 accepts.
fn kexinit() -> Vec<u8> {
    let lists = [
        "curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256",
        "ssh-ed25519,rsa-sha2-512",
        "aes128-ctr",
        "aes128-ctr",
        "hmac-sha2-256",
        "hmac-sha2-256",
        "none",
        "none",
        "",
        "",
    ];
    let mut out = [&[20][..], &[7; 16]].concat();
    lists.iter().for_each(|list| out.extend(string(list.as_bytes())));
    out.extend([0; 5]);
    out
}

/// The corpus: a name, and the host's behaviour.
fn corpus() -> Vec<(String, Script)> {
    let mut corpus: Vec<(String, Script)> = Vec::new();
    let mut add = |name: &str, script| corpus.push((name.to_owned(), script));
    add("leaves at once", sends_and_disconnects(Vec::new()));
    add("sends nothing", sends(Vec::new()));
    add("is a web server", sends_and_disconnects(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    add("a banner without an end", sends([b"SSH-2.0-", &vec![b'x'; 1 << 20][..]].concat()));
    add("a banner of control bytes", sends(b"SSH-2.0-\x1b]0;x\x07\x00\xff\x9b2J\r\n".to_vec()));
    add("an old version", sends_and_disconnects(b"SSH-1.5-x\r\n".to_vec()));
    add(
        "lines before a banner, for ever",
        Arc::new(|stream| {
            loop {
                stream.write_all(b"welcome to the machine\r\n")?;
            }
        }),
    );
    add(
        "a byte now and then",
        Arc::new(|stream| {
            for byte in after_banner(&packet(&kexinit())).iter().cycle() {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        }),
    );
    for length in
        [0, 1, 2, 5, 7, 11, 12, 13, 255, 35_000, 35_001, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, u32::MAX]
    {
        for padding in [0, 3, 255] {
            let bytes = raw_packet(length, padding, &[20; 64]);
            add(
                &format!("a packet of {length} with {padding} of padding"),
                sends_and_disconnects(after_banner(&bytes)),
            );
        }
    }
    let whole = packet(&kexinit());
    for cut in [1, 5, 6, 21, 25, 40, whole.len() - 9, whole.len() - 1] {
        add(&format!("a KEXINIT cut at {cut}"), sends_and_disconnects(after_banner(&whole[..cut])));
    }
    for (at, length) in [(17, u32::MAX), (17, 0x7fff_ffff), (17, 1 << 20), (87, u32::MAX), (87, 0xffff_ff00)]
    {
        let mut bent = kexinit();
        bent[at..at + 4].copy_from_slice(&length.to_be_bytes());
        let name = format!("a KEXINIT with {length} at {at}");
        add(&name, sends_and_disconnects(after_banner(&packet(&bent))));
    }
    add(
        "a KEXINIT of nothing in common",
        sends(after_banner(&packet(&[&[20][..], &[0; 16], &[0; 45]].concat()))),
    );
    add(
        "a KEXINIT without an end of names",
        sends(after_banner(&packet(&{
            let names = vec![b','; 30_000];
            [&[20][..], &[0; 16], &string(&names), &[0; 41]].concat()
        }))),
    );
    for (kind, body) in [
        (31, [string(&[]), string(&[]), string(&[])].concat()),
        (31, u32::MAX.to_be_bytes().to_vec()),
        (31, [string(b"ssh-ed25519"), vec![0xff; 40]].concat()),
        (
            31,
            [
                string(&[&string(b"ssh-ed25519")[..], &u32::MAX.to_be_bytes()].concat()),
                string(&[9; 32]),
                string(&[1; 80]),
            ]
            .concat(),
        ),
        (
            31,
            [
                string(&[&string(b"ssh-ed25519")[..], &string(&[3; 32])].concat()),
                string(&[0; 32]),
                string(&[&string(b"ssh-ed25519")[..], &string(&[5; 64])].concat()),
            ]
            .concat(),
        ),
        (
            31,
            [
                string(&[&string(b"ssh-rsa")[..], &string(&[1]), &string(&vec![0xff; 20_000])].concat()),
                string(&[4; 65]),
                string(&[1; 300]),
            ]
            .concat(),
        ),
        (33, vec![0xff; 64]),
        (21, Vec::new()),
        (6, string(b"ssh-userauth")),
        (52, Vec::new()),
        (94, [vec![0; 4], u32::MAX.to_be_bytes().to_vec()].concat()),
        (1, [vec![0, 0, 0, 2], u32::MAX.to_be_bytes().to_vec()].concat()),
        (4, [vec![1], string(b"\x1b[2J forged"), u32::MAX.to_be_bytes().to_vec()].concat()),
        (
            7,
            [u32::MAX.to_be_bytes().to_vec(), string(b"server-sig-algs"), u32::MAX.to_be_bytes().to_vec()]
                .concat(),
        ),
        (0, vec![0xff; 40]),
        (255, vec![0xff; 40]),
    ] {
        let message = packet(&[&[kind][..], &body].concat());
        let both = [packet(&kexinit()), message.clone()].concat();
        add(&format!("message {kind} before a KEXINIT"), sends_and_disconnects(after_banner(&message)));
        add(&format!("message {kind} after a KEXINIT"), sends_and_disconnects(after_banner(&both)));
    }
    add("IGNORE for ever", repeats(packet(&[&[2][..], &string(&[0; 20_000])].concat())));
    add("DEBUG for ever", repeats(packet(&[&[4, 1][..], &string(&[b'x'; 20_000]), &string(&[])].concat())));
    add(
        "EXT_INFO for ever",
        repeats(packet(&[&[7][..], &[0, 0, 0, 1], &string(b"a"), &string(&[0; 20_000])].concat())),
    );
    add("KEXINIT for ever", repeats(packet(&kexinit())));
    add("CHANNEL_DATA for ever", repeats(packet(&[&[94][..], &[0; 4], &string(&[0; 20_000])].concat())));
    // Deterministic bytes, so that each run tests the same.
    for seed in 1..=48_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let noise: Vec<u8> = (0..600).map(|_| byte()).collect();
        // Sent as they are, as a packet's payload, or as a mutated KEXINIT.
        let bytes = match seed % 3 {
            0 => noise,
            1 => packet(&noise),
            _ => {
                let mut bent = kexinit();
                noise.chunks(8).for_each(|chunk| {
                    let at = usize::from(chunk[0]) % bent.len();
                    bent[at] = chunk[1];
                });
                packet(&bent)
            }
        };
        add(&format!("noise {seed}"), sends_and_disconnects(after_banner(&bytes)));
    }
    corpus
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_t21_a_host_without_ssh_fails_once_in_bounded_time_and_memory() -> Result<()> {
    let before = resident()?;
    let began = Instant::now();
    let mut meetings = tokio::task::JoinSet::new();
    let mut met = 0;
    for (name, script) in corpus() {
        meetings.spawn(async move {
            let host = EvilSshd::start(script)?;
            let error = host.meet().await.with_context(|| name.clone())?;
            let why = error.to_string();
            ensure!(!why.chars().any(char::is_control) && why.len() <= 256, "{name}: {why:?}");
            ensure!(!matches!(error, LaunchError::Probe { .. }), "{name}: {why}");
            ensure!(host.met.load(Ordering::Relaxed) == 1, "{name}: it was called again: {why}");
            anyhow::Ok(name)
        });
        // As many in parallel as the launcher allows.
        while meetings.len() >= 32 {
            met += usize::from(meetings.join_next().await.context("a meeting")???.len() > 1);
        }
    }
    while let Some(meeting) = meetings.join_next().await {
        met += usize::from(meeting??.len() > 1);
    }
    ensure!(met > 120, "only {met} of the corpus were met");
    let grown = resident()?.saturating_sub(before);
    ensure!(grown < MEMORY, "{} MiB more after {met} hosts, in {:?}", grown >> 20, began.elapsed());
    Ok(())
}

/// The resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
