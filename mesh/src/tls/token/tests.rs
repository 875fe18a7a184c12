//! A damaged line is never accepted, and the error names what is wrong with it.

use proptest::prelude::*;

use super::*;

fn token(addresses: &[&str]) -> JoinToken {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    let (ca, id) = (Fingerprint([3; 32]), TokenId([4; 8]));
    JoinToken::new(addresses, ca, id, TokenSecret([5; 16])).unwrap()
}

#[test]
fn a_line_is_read_back() {
    let token = token(&["10.0.0.1:7400", "[fd00::1]:7400", "coordinator.example:1"]);
    let line = token.line();
    assert!(line.starts_with("volvox-join-v1."), "{line}");
    for line in [line.clone(), format!("  {line}\n"), line.to_uppercase()] {
        let read = JoinToken::parse(&line).unwrap();
        assert_eq!(read.addresses(), token.addresses());
        assert_eq!((read.ca(), read.id()), (token.ca(), token.id()));
        assert_eq!(read.secret().0, token.secret().0);
    }
    println!(
        "a token with one address: {} characters",
        super::tests::token(&["10.0.0.1:7400"]).line().len()
    );
}

#[test]
fn the_secret_is_not_shown() {
    let shown = format!("{:?}", token(&["a:1"]));
    assert!(shown.contains("secret: secret"), "{shown}");
    assert!(!shown.contains("5, 5"), "{shown}");
}

#[test]
fn a_hash_is_of_one_secret() {
    let hash = TokenSecret([5; 16]).hash();
    assert!(hash.is_of(&TokenSecret([5; 16])));
    let mut other = [5; 16];
    other[15] ^= 1;
    assert!(!hash.is_of(&TokenSecret(other)));
}

#[test]
fn what_is_wrong_is_said() {
    let line = token(&["10.0.0.1:7400"]).line();
    let check = |line: &str, says: &str| {
        let refused = JoinToken::parse(line).unwrap_err().to_string();
        assert!(refused.contains(says), "{line}: {refused}");
    };
    check("", "no join token");
    check("hello", "no join token");
    check("volvox-join-v2.abcdefgh", "another version (\"v2\")");
    check("volvox-join-v", "is cut");
    check("volvox-join-v1.", "is cut");
    check("volvox-join-v1.ab", "is cut");
    check(&line[..line.len() - 1], "is cut");
    check(&line[..line.len() / 2], "is cut");
    check(&format!("{line}a"), "belong to it");
    check(&format!("{line} {line}"), "cannot contain ' '");
    check(&line.replace(".a", ".a1"), "cannot contain '1'");
    let last = if line.ends_with('q') { 'a' } else { 'q' };
    check(&format!("{}{last}", &line[..line.len() - 1]), "checksum does not agree");
    check(&"x".repeat(5000), "belong to it");
    check("volvox-join-v1.äöüß", "cannot contain 'ä'");
}

#[test]
fn addresses_are_checked() {
    for good in ["a:1", "10.0.0.1:65535", "[::1]:7400", "cell-1.z_2.example:80"] {
        check_address(good).unwrap();
    }
    let long = format!("{}:1", "x".repeat(254));
    for bad in ["", "a", ":1", "a:0", "a:65536", "a:+1", "a:x", "::1:80", "[a]:1", "a b:1", &long] {
        let refused = check_address(bad).unwrap_err().to_string();
        assert!(refused.contains("give host:port"), "{bad}: {refused}");
    }
    let make = |addresses| {
        JoinToken::new(addresses, Fingerprint([3; 32]), TokenId([4; 8]), TokenSecret([5; 16]))
    };
    assert_eq!(make(vec![]).unwrap_err(), TokenError::Addresses(0));
    assert_eq!(make(vec!["a:1".into(); 9]).unwrap_err(), TokenError::Addresses(9));
    let longest = format!("{}:1", "x".repeat(253));
    let line = make(vec![longest; ADDRESSES]).unwrap().line();
    assert!(line.len() <= LINE_BYTES);
    assert!(JoinToken::parse(&line).is_ok());
}

#[test]
fn an_id_is_read_back() {
    let id = TokenId([0xab; 8]);
    assert_eq!(id.to_string().parse::<TokenId>().unwrap(), id);
    assert_eq!("xyz".parse::<TokenId>().unwrap_err(), TokenError::Id);
}

proptest! {
    #[test]
    fn no_cut_line_is_taken(secret: [u8; 16], ca: [u8; 32], cut in any::<prop::sample::Index>()) {
        let addresses = vec!["10.0.0.1:7400".to_owned()];
        let token =
            JoinToken::new(addresses, Fingerprint(ca), TokenId([4; 8]), TokenSecret(secret));
        let line = token.unwrap().line();
        prop_assert_eq!(JoinToken::parse(&line).unwrap().line(), line.clone());
        let cut = cut.index(line.len());
        let refused = JoinToken::parse(&line[..cut]).unwrap_err();
        let expected = cut < FAMILY.len() && refused == TokenError::Prefix
            || matches!(refused, TokenError::Cut { given, .. } if given == cut);
        prop_assert!(expected, "{}: {}", cut, refused);
    }

    #[test]
    fn no_line_with_a_wrong_character_is_taken(
        secret: [u8; 16],
        at in any::<prop::sample::Index>(),
        with in "[!-~]",
    ) {
        let addresses = vec!["10.0.0.1:7400".to_owned()];
        let (ca, id) = (Fingerprint([3; 32]), TokenId([4; 8]));
        let mut line = JoinToken::new(addresses, ca, id, TokenSecret(secret)).unwrap().line();
        let at = at.index(line.len());
        prop_assume!(!line[at..=at].eq_ignore_ascii_case(&with));
        line.replace_range(at..=at, &with);
        prop_assert!(JoinToken::parse(&line).is_err(), "{}", line);
    }

    #[test]
    fn no_text_panics(line in "(volvox-join-v1\\.)?\\PC{0,80}") {
        prop_assert!(JoinToken::parse(&line).is_err());
    }
}
