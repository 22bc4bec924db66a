//! The addresses of this relay: links, and the `ssh -L` commands that lead to them.

use super::terminal;
use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_access::runtime_dir::MAX_SOCKET_PATH;
use nodeglass_config::{BindAddr, Config};
use nodeglass_launch::ssh_config::Local;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::{NodeName, Text};
use nodeglass_share::ShareEndpoint;
use nodeglass_web::Listeners;
use nodeglass_web::about::About;
use std::path::Path;

/// The name of this machine as a node.
pub fn here() -> NodeName {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    NodeName::new(name).unwrap_or_else(|_| NodeName::new("localhost").expect("a valid name"))
}

pub(super) fn here_text() -> Text {
    Text::new(here().as_str())
}

/// The login name with which the user reaches this machine; a simulated cluster and a recording have other users.
pub fn own_login() -> Text {
    Text::new(Local::from_env().user)
}

/// The `ssh -L` command to the first address that needs one.
pub(super) fn tunnel(listeners: &Listeners, user: &Text, host: &Text) -> Text {
    let tunnel = |addr| terminal::tunnel(&addr, user, host);
    listeners.addresses().into_iter().find_map(tunnel).unwrap_or_default()
}

/// Returns the tunnel command for a teammate, with their own login.
pub(super) fn guests_tunnel(listeners: &Listeners, host: &Text) -> Text {
    let tunnel = |addr| terminal::guests_tunnel(&addr, host);
    listeners.addresses().into_iter().find_map(tunnel).unwrap_or_default()
}

/// The `ssh -L` command to the private socket, if ssh can reach it and no other command does.
pub(super) fn own_tunnel(path: &Path, listeners: &Listeners) -> Option<String> {
    let first = listeners.addresses().into_iter().next()?;
    let BindAddr::Tcp(first) = first else { return None };
    let fits = path.as_os_str().len() <= MAX_SOCKET_PATH;
    let (login, host) = (own_login(), Text::new(here().as_str()));
    fits.then(|| terminal::tunnel_to_socket(first.port(), path, &login, &host).to_string())
}

/// Returns the address to which a teammate connects; never a socket that only its owner may open.
pub(super) fn share_endpoint(listeners: &Listeners, config: &Config, about: &About) -> ShareEndpoint {
    let name = config.allowed_hosts.first().map(String::as_str);
    let open = listeners
        .addresses()
        .into_iter()
        .find(|addr| !matches!(addr, BindAddr::Unix(_) | BindAddr::Owner(_)));
    let address = open.map(|addr| {
        nodeglass_access::address(&terminal::origin(&addr, name), &config.base_path(), &about.cache_buster)
    });
    ShareEndpoint { address, tunnel: about.guests_tunnel.clone() }
}

/// One link per address, except those for a proxy of the owner, which has an address of its own.
pub(super) fn links(listeners: &Listeners, config: &Config, buster: &CacheBuster, key: &Key) -> Vec<String> {
    let name = config.allowed_hosts.first().map(String::as_str);
    let address =
        |addr| nodeglass_access::address(&terminal::origin(&addr, name), &config.base_path(), buster);
    let addresses = listeners.addresses().into_iter().filter(|addr| !matches!(addr, BindAddr::Owner(_)));
    addresses.map(|addr| nodeglass_access::link(&address(addr), key)).collect()
}
