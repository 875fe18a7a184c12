//! Who a process runs as: a name or number looked up in the container's own files.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

/// A user of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// Finds `wanted` in the texts of the container's passwd and group files. A number needs no
/// entry; a name does. An entry that cannot be understood is passed over.
pub(crate) fn find(wanted: &str, passwd: &str, group: &str) -> Result<User, String> {
    let entries = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = plain_number(fields.nth(1)?)?;
        let gid = plain_number(fields.next()?)?;
        Some((name, uid, gid, fields.nth(1)?))
    });
    let number: Option<u32> = plain_number(wanted);
    let found = entries
        .clone()
        .find(|(name, ..)| *name == wanted)
        .or_else(|| entries.clone().find(|(_, uid, ..)| Some(*uid) == number));
    let (name, uid, gid, home) = match (found, number) {
        (Some(entry), _) => entry,
        (None, Some(uid)) => ("", uid, uid, "/"),
        (None, None) => {
            return Err(format!("there is no user {wanted:?} in the container's /etc/passwd"));
        }
    };
    let mut groups: Vec<u32> = group
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let gid = plain_number(fields.nth(2)?)?;
            let member = !name.is_empty() && fields.next()?.split(',').any(|it| it == name);
            member.then_some(gid)
        })
        .chain([gid])
        .collect();
    groups.sort_unstable();
    groups.dedup();
    Ok(User { uid, gid, groups, home: home.to_owned() })
}

/// Digits only: no sign, no blank, nothing that another parser would read otherwise. The highest
/// number is nobody's: to the kernel it means "stay who you are", and that is the host's root.
fn plain_number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok().filter(|id| *id != u32::MAX) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nvcap:x:2000:2000::/home/vcap:/bin/sh\n\
        broken\nstay:x:4294967295:0::/:/bin/sh\n0:x:77:77::/odd:/bin/sh\nbig:x:99999999999:1::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:other,vcap\nvcap:x:2000:\nwheel:x:10:vcapx\n";

    #[test]
    fn names_numbers_and_neither() {
        let user = |uid, gid, groups: &[u32], home: &str| {
            Ok(User { uid, gid, groups: groups.to_vec(), home: home.to_owned() })
        };
        let cases = [
            ("root", user(0, 0, &[0], "/root")),
            ("vcap", user(2000, 2000, &[50, 2000], "/home/vcap")),
            ("2000", user(2000, 2000, &[50, 2000], "/home/vcap")),
            ("4242", user(4242, 4242, &[4242], "/")),
            // A name that looks like a number is a name first, as login programs have it.
            ("0", user(77, 77, &[77], "/odd")),
        ];
        for (wanted, expected) in cases {
            assert_eq!(find(wanted, PASSWD, GROUP), expected, "{wanted}");
        }
        for wanted in [
            "",
            "nobody",
            "-1",
            "+0",
            " 0",
            "0x0",
            "4294967295",
            "4294967296",
            "big",
            "stay",
            "root\0",
        ] {
            assert!(find(wanted, PASSWD, GROUP).is_err(), "{wanted:?} was found");
        }
    }
}
