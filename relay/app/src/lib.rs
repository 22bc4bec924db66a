//! Assembles the relay, runs it, and shuts it down so that no process is left behind anywhere.
//!
//! [`run`] serves until a signal; [`embedded`] is the same without listeners, within another command. [`watched`] decides where
//! jobs and nodes come from, [`addresses`] how the relay is reached, and [`terminal`] what is shown. [`remote`] is the client of
//! a relay that runs already.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod addresses;
pub mod embedded;
mod last_cluster;
mod limits;
mod listed_hosts;
mod nats;
pub mod polling;
mod relay;
pub mod remote;
mod remote_write;
mod signals;
mod site;
mod sources;
mod storage;
pub mod terminal;
mod tpu_pod;
pub mod watched;

use addresses::{guests_tunnel, here, here_text, links, own_login, own_tunnel, share_endpoint, tunnel};
use anyhow::Context;
use listed_hosts::ListedHosts;
use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_access::key_file::{self, KeyFile, Running};
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use nodeglass_config::{Config, Requested};
use nodeglass_event_loop::Options;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::Key;
use nodeglass_rules::text::span;
use nodeglass_web::Listeners;
use nodeglass_web::about::About;
use nodeglass_web::assets::{self, PageFile};
use nodeglass_web::tls::Tls;
use relay::{Ending, Relay, Setup};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
pub use signals::Signals;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use terminal::Terminal;
use watched::Watched;

/// Enough for 10,000 nodes.
const OPEN_FILES: u64 = 65_536;

/// Runs a relay until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// Any failure of the start, as a complete sentence for the user.
pub async fn run(
    config: Config,
    requested: Requested,
    page: &'static [PageFile],
) -> anyhow::Result<ExitCode> {
    // Before anything that needs cleaning up, so that an early signal is handled.
    let signals = Signals::listen()?;
    raise_open_files();
    // Before anything is started that has the limits as well.
    let (limits, unused) = limits::apply(&config);
    let unused = config.auto_exit.zip(unused);
    let limit_lines = limits.load.lines();
    // What the settings name is checked before a port is taken: a wrong file is not reported as a port in use.
    let tls = config.tls().as_ref().map(Tls::load).transpose()?;
    let hosts = ListedHosts::load(&config).await?;
    let watched = Watched::choose(&config).await?;
    let nats = nats::publish(&config, &watched).await?;
    storage::check_record(&config)?;
    let mut listeners = nodeglass_web::bind(&config.bind, tls.as_ref()).await?;
    let places = Places::from_env();
    let dir = RuntimeDir::open(&places)?;
    let own = listeners.open_private(&dir, &key_file::socket_name(std::process::id()));
    let key = nodeglass_access::new_key()?;
    let tunnels = (tunnel(&listeners, &own_login(), &here_text()), guests_tunnel(&listeners, &here_text()));
    let about = about(&config, &watched, tunnels, page)?;
    let endpoint = share_endpoint(&listeners, &config, &about);
    let watches = watched.description(&requested.watch, hosts.as_ref().map(ListedHosts::description));
    let terminal = Terminal::new();
    if let Some(hosts) = &hosts {
        hosts.warn(&terminal);
    }
    let relay = Relay::start(Setup {
        config: &config,
        about,
        watched,
        hosts,
        nats,
        key: key.clone(),
        endpoint,
        terminal,
        stores: true,
        page,
        sampling: Options::default().idling(config.idle_interval).pausing(config.view_only),
        limits: Some(limits),
    })?;
    let private_socket = own.as_ref().ok().map(|socket| (socket.as_path(), dir.is_in_shared_place()));
    let running = running(&config, requested, watches, &listeners, &relay.about, &key, private_socket);
    let key_file = KeyFile::write(dir, &running).context("failed to store the link for `relay link`")?;
    terminal.open(&running);
    limit_lines.into_iter().for_each(|line| terminal.notice(&line.into()));
    if let Some((after, _)) = &unused {
        let after = span(after.as_secs());
        terminal
            .notice(&format!("exits after {after} without jobs, viewers and requests (auto-exit)").into());
    }
    if let Some((path, uid)) = places.taken() {
        let path = path.display();
        terminal.warn(
            &format!(
                "{path} belongs to another user (uid {uid}): an `ssh -L` line with this folder leads to their program, which a \
                 browser takes for your relay; use the line above, and tell your administrator"
            )
            .into(),
        );
    }
    warn(&terminal, &listeners, &relay, own.err());
    relay.serve(listeners, Ending { signals, unused }, key_file, &terminal).await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the description of this relay for `relay link` and a second relay.
fn running(
    config: &Config,
    requested: Requested,
    watches: Text,
    listeners: &Listeners,
    about: &About,
    key: &Key,
    private_socket: Option<(&Path, bool)>,
) -> Running {
    Running {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since_s: Clock::wall_ms() / 1_000,
        watches: watches.to_string(),
        requested_watch: requested.watch,
        settings: requested.settings,
        addresses: listeners.addresses().iter().map(ToString::to_string).collect(),
        read_only: config.read_only,
        links: links(listeners, config, &about.cache_buster, key),
        tunnel: about.tunnel.to_string(),
        own_tunnel: private_socket.and_then(|(path, _)| own_tunnel(path, listeners)),
        is_socket_in_shared_place: private_socket.is_some_and(|(_, is_shared)| is_shared),
    }
}

/// Warns of problems that do not prevent the start; `private_socket` is the reason for having none.
fn warn(terminal: &Terminal, listeners: &Listeners, relay: &Relay, private_socket: Option<impl Display>) {
    for port in listeners.ports_taken_on_ipv6() {
        terminal.warn(
            &format!(
                "another program listens on [::1]:{port}, so `localhost:{port}` may lead to it; \
                 use 127.0.0.1 in the ssh command, as shown above"
            )
            .into(),
        );
    }
    if let Some(problem) = relay.web.authenticator.tokens().problem(Clock::wall_ms()) {
        terminal.warn(&problem);
    }
    if let Some(error) = private_socket {
        terminal.warn(&format!("{error}; continuing without a private socket").into());
    }
}

/// Raises the limit of open files, which is often 1,024: each `ssh` takes three, each viewer one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it, launches beyond the limit fail with a message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// The name of the cluster in the metrics, if the settings state one: that on NATS, unless it has another one in the database.
fn metrics_cluster(config: &Config) -> Option<Text> {
    let named = config.metrics_cluster.as_ref().or(config.nats_cluster.as_ref()).map(ToString::to_string);
    named.or_else(|| config.cluster.clone()).map(Text::from)
}

/// Constants of this run, given the owner's and guests' `ssh -L` commands.
fn about(
    config: &Config,
    watched: &Watched,
    (tunnel, guests_tunnel): (Text, Text),
    page: &[PageFile],
) -> anyhow::Result<About> {
    let (user, here) = (watched.user(), here_text());
    let (clock, host) = match watched {
        // Its pages show whose recording it is.
        Watched::Replay(player, _) => (player.clock(), player.info().host.clone()),
        _ => (Clock::start(), here.clone()),
    };
    let mut epoch = [0; 4];
    // A fixed epoch would only make pages show an old picture for a moment.
    let _ = getrandom::fill(&mut epoch);
    Ok(About {
        build: Text::new(assets::build_id(page)),
        cache_buster: CacheBuster::random()?,
        epoch: u32::from_ne_bytes(epoch),
        clock,
        tunnel,
        guests_tunnel,
        read_only: config.read_only || matches!(watched, Watched::Replay(..) | Watched::Others(..)),
        user,
        host,
        cluster: watched.cluster(),
        metrics_cluster: metrics_cluster(config),
        mode: watched.mode(),
        downtimes: Vec::new(),
        report_webhook: config.report_webhook().map(|webhook| Text::new(webhook.display_url())),
    })
}
