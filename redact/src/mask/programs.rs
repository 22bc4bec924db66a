//! Programs whose short options or positional arguments are secrets, and the state machine that finds them.

use super::names::{self, NameClass};

/// The last known program of a command line, named after one of several with the same options, and how far its
/// arguments were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// No known program.
    #[default]
    Other,
    /// `-pSECRET`, always in one word.
    Mysql,
    /// `-p SECRET` or `-pSECRET`.
    Sshpass,
    /// `-p SECRET` after a login subcommand.
    Registry,
    /// [`Self::Registry`], after the login subcommand.
    RegistryLogin,
    /// `-a SECRET`.
    Redis,
    /// `-w SECRET`.
    Ldap,
    /// `-p SECRET`.
    Mongo,
    /// `-P SECRET` or `-PSECRET`.
    Zip,
    /// `-uUSER:SECRET`, `-b NAME=SECRET`, `-E FILE:SECRET`.
    Curl,
    /// `-u USER,SECRET`.
    Lftp,
    /// `USER:SECRET` after its own name.
    Chpasswd,
    /// `-c SECRET`, `-A SECRET`, `-X SECRET`.
    Snmp,
    /// `/p:SECRET`.
    Freerdp,
    /// `-b FILE USER SECRET`, or `-nb USER SECRET`: whether the flag was given, and the number of
    /// words left before the secret.
    Htpasswd(bool, u8),
    /// `config set NAME SECRET`, if the name announces a secret.
    Config,
    /// [`Self::Config`], after the set subcommand.
    ConfigSet,
    /// `alias set NAME ADDRESS SECRET SECRET`.
    Minio,
    /// [`Self::Minio`], after the set subcommand, with the number of words since.
    MinioSet(u8),
    /// `machine NAME login USER password SECRET`, as in a netrc file.
    Netrc,
    /// `-U USER%SECRET`.
    Samba,
    /// `-k SECRET`, `-K SECRET`.
    Openssl,
    /// The argument of `login` is the key itself.
    Wandb,
    /// [`Self::Wandb`], after `login`.
    WandbLogin,
}

/// Names of the executables that each program represents. [`Program::Other`] ends the arguments of the program
/// before.
const PROGRAMS: [(Program, &[&str]); 20] = [
    (Program::Other, &["ssh", "scp", "sftp", "rsync", "psql", "python", "python3"]),
    (
        Program::Mysql,
        &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mysqlimport",
            "mysqlshow",
            "mariadb",
            "mariadb-dump",
            "mycli",
            "7z",
            "7za",
            "rar",
            "unrar",
        ],
    ),
    (Program::Sshpass, &["sshpass"]),
    (
        Program::Registry,
        &[
            "docker",
            "podman",
            "nerdctl",
            "buildah",
            "skopeo",
            "helm",
            "az",
            "oc",
            "apptainer",
            "singularity",
            "crane",
        ],
    ),
    (Program::Redis, &["redis-cli"]),
    (
        Program::Ldap,
        &["ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd", "ldapcompare"],
    ),
    (
        Program::Mongo,
        &[
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "mongoexport",
            "mongoimport",
            "cqlsh",
            "clickhouse",
            "rdesktop",
            "ncftp",
            "ncftpget",
            "ncftpput",
        ],
    ),
    (Program::Zip, &["zip", "unzip", "pdftk", "sqlcmd", "bcp", "ipmitool"]),
    (Program::Curl, &["curl"]),
    (Program::Lftp, &["lftp"]),
    (Program::Chpasswd, &["chpasswd"]),
    (
        Program::Snmp,
        &[
            "snmpget",
            "snmpgetnext",
            "snmpbulkget",
            "snmpwalk",
            "snmpbulkwalk",
            "snmpset",
            "snmptable",
            "snmptrap",
        ],
    ),
    (Program::Freerdp, &["xfreerdp", "xfreerdp3", "wlfreerdp", "sdl-freerdp"]),
    (Program::Htpasswd(false, 2), &["htpasswd"]),
    (
        Program::Config,
        &[
            "aws", "gcloud", "git", "gh", "glab", "npm", "yarn", "pip", "pip3", "poetry", "conda", "dvc",
            "rclone",
        ],
    ),
    (Program::Minio, &["mc", "mcli"]),
    (Program::Netrc, &["machine"]),
    (Program::Samba, &["smbclient", "rpcclient"]),
    (Program::Openssl, &["openssl"]),
    (Program::Wandb, &["wandb", "vault"]),
];

impl Program {
    /// Advances the state by a word that may be a program, or a subcommand of the last one.
    pub fn advance(&mut self, word: &str) {
        let name = word.trim_matches(['"', '\'', '(', '`']).rsplit('/').next().unwrap_or_default();
        let known = PROGRAMS.iter().find(|(_, names)| names.contains(&name));
        *self = match (known, *self) {
            (Some((program, _)), _) => *program,
            (None, Self::Registry) if word == "login" => Self::RegistryLogin,
            (None, Self::Wandb) if word == "login" => Self::WandbLogin,
            (None, Self::Config) if matches!(word, "set" | "config" | "modify") => Self::ConfigSet,
            (None, Self::Minio) if matches!(word, "set" | "add") => Self::MinioSet(0),
            (None, Self::MinioSet(words)) if !word.starts_with('-') => {
                Self::MinioSet(words.saturating_add(1))
            }
            (None, Self::Htpasswd(batch, left)) => match word.strip_prefix('-') {
                Some(letters) => Self::Htpasswd(
                    batch || letters.contains('b'),
                    if letters.contains('n') { 1 } else { left },
                ),
                None => Self::Htpasswd(batch, left.saturating_sub(1)),
            },
            (None, _) if matches!(word, ";" | "|" | "||" | "&&" | "&") => Self::Other,
            (None, program) => program,
        };
    }

    /// Returns the option at the start of a word that contains both option and secret, such as `-pSECRET`.
    pub fn option_joined_with_secret<'a>(&self, word: &'a str) -> Option<&'a str> {
        let letter = match self {
            Self::Mysql | Self::Sshpass => "-p",
            Self::Zip => "-P",
            Self::Curl => ["-u", "-b"].into_iter().find(|letter| word.starts_with(letter))?,
            Self::Freerdp => ["/p:", "/gp:", "/password:"].into_iter().find(|name| word.starts_with(name))?,
            _ => return None,
        };
        let secret = word.strip_prefix(letter)?;
        let is_secret = match letter {
            "-u" => secret.contains(':'),
            // Without `=`, it is a cookie file.
            "-b" => secret.contains('='),
            _ => !secret.is_empty(),
        };
        is_secret.then(|| &word[..letter.len()])
    }

    /// Returns whether the word after `word` is a secret.
    pub fn next_is_secret(&self, word: &str) -> bool {
        match self {
            Self::Sshpass | Self::RegistryLogin | Self::Mongo => word == "-p",
            Self::Redis => word == "-a",
            Self::Ldap => word == "-w",
            Self::Zip => word == "-P",
            Self::Openssl => matches!(word, "-k" | "-K"),
            Self::WandbLogin => matches!(word, "login" | "--relogin" | "--cloud"),
            Self::Snmp => matches!(word, "-c" | "-A" | "-X"),
            Self::Htpasswd(true, 0) | Self::MinioSet(2) => true,
            Self::ConfigSet => !word.starts_with('-') && names::classify(word) > NameClass::Perhaps,
            Self::Netrc => matches!(word, "password" | "passwd" | "account"),
            _ => false,
        }
    }

    /// Returns whether the word after a secret is a secret too, and advances the state.
    pub fn another_secret_follows(&mut self) -> bool {
        let follows = *self == Self::MinioSet(2);
        if follows {
            *self = Self::Minio;
        } else if matches!(self, Self::Htpasswd(..)) {
            *self = Self::Other;
        }
        follows
    }

    /// Returns the separator between user and secret, if the word after `word` consists of both.
    pub fn next_credentials_separator(&self, word: &str) -> Option<char> {
        match (self, word) {
            (Self::Samba, "-U") => Some('%'),
            (Self::Lftp, "-u" | "--user") => Some(','),
            (Self::Curl, "-b") => Some('='),
            (Self::Curl, "-E" | "--cert" | "--proxy-cert" | "-U") => Some(':'),
            (Self::Chpasswd, word) if word.ends_with("chpasswd") => Some(':'),
            (_, "-u" | "--user" | "--proxy-user" | "--basic") => Some(':'),
            (_, "--login") => Some('/'),
            _ => None,
        }
    }
}

/// Returns whether the argument after `argument` is a shell script.
pub fn next_is_script(argument: &str) -> bool {
    let letters = argument.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    let shell = letters.is_some_and(|letters| {
        letters.ends_with('c') && letters.len() <= 4 && letters.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    shell || matches!(argument, "--wrap" | "eval" | "--command")
}
