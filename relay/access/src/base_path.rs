//! The base path of a relay behind a proxy; the relay serves the same routes there and at the root.

use std::fmt;
use std::str::FromStr;

/// The path below which a proxy serves the relay: empty at the root, else with a leading and without a
/// trailing slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(String);

/// An invalid base path. The message is a complete sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a base path; use the path shown in the browser, such as /rnode/login1/8080")]
pub struct BasePathError(String);

/// Maximum length of a base path.
const MAX_LEN: usize = 200;

impl FromStr for BasePath {
    type Err = BasePathError;

    fn from_str(raw: &str) -> Result<Self, BasePathError> {
        let path = raw.strip_suffix('/').unwrap_or(raw);
        // These need no escaping in a URL, in HTML and in a header.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'~');
        let is_segment =
            |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain);
        let rest = path.strip_prefix('/');
        let good = rest.is_some_and(|rest| rest.split('/').all(is_segment)) && path.len() <= MAX_LEN;
        if good || raw == "/" { Ok(Self(path.to_owned())) } else { Err(BasePathError(raw.to_owned())) }
    }
}

impl BasePath {
    /// Returns its text: empty, or like `/rnode/login1/8080`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The rest of a path below it, with its leading slash.
    pub fn below<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.0).filter(|rest| rest.starts_with('/'))
    }

    /// The relative redirect target for a request of the base path without its trailing slash.
    pub fn redirect_target(&self, path: &str) -> Option<String> {
        let (_, last) = self.0.rsplit_once('/')?;
        (path == self.0).then(|| format!("{last}/"))
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_accepted_with_and_without_trailing_slash() {
        for (raw, path) in
            [("/", ""), ("/p", "/p"), ("/p/", "/p"), ("/rnode/login1.hpc/8080/", "/rnode/login1.hpc/8080")]
        {
            assert_eq!(raw.parse::<BasePath>().unwrap().as_str(), path);
        }
    }

    #[test]
    fn a_base_path_with_url_syntax_is_refused() {
        for raw in [
            "",
            "p",
            "//",
            "/a//b",
            "/../x",
            "/a/./b",
            "/a b",
            "/a?b",
            "/a#b",
            "/a%2fb",
            "/a\"b",
            "/a\r\nb",
            "http://x/",
        ] {
            assert!(raw.parse::<BasePath>().is_err(), "{raw:?}");
        }
        assert!(format!("/{}", "x".repeat(300)).parse::<BasePath>().is_err());
    }

    #[test]
    fn only_paths_below_the_base_path_are_stripped() {
        let base: BasePath = "/rnode/login1/8080".parse().unwrap();
        assert_eq!(base.below("/rnode/login1/8080/job/1"), Some("/job/1"));
        assert_eq!(base.below("/rnode/login1/8080/"), Some("/"));
        for path in ["/rnode/login1/8080", "/rnode/login1/80801/", "/job/1", "/RNODE/login1/8080/", "/"] {
            assert_eq!(base.below(path), None, "{path}");
        }
        assert_eq!(base.redirect_target("/rnode/login1/8080").as_deref(), Some("8080/"));
        assert_eq!(base.redirect_target("/rnode/login1"), None);
        assert_eq!(BasePath::default().redirect_target(""), None);
        assert_eq!(BasePath::default().below("/job/1"), Some("/job/1"));
    }
}
