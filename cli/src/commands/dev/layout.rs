//! Which addresses, ports and names a `volvox dev` has, and the configurations made of them. Pure.
//!
//! Each has a number, and by it names and addresses that no other has: 127.77.NUMBER.0/24 of the
//! loopback for what listens, a bridge and a /24 for the containers of each cell. A mapped port is
//! translated for every address of the loopback, so ports must differ between all cells too.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Cells of one `volvox dev`.
pub(crate) const MOST_CELLS: u8 = 8;
/// How many may run beside each other.
pub(super) const NUMBERS: u8 = 8;
/// Where the containers may be, by the first two numbers of their addresses; the first that nobody
/// else on the machine has. The last is of the networks for measurements (RFC 2544).
pub(super) const BASES: [[u8; 2]; 3] = [[10, 254], [172, 30], [198, 18]];
/// The first mapped port. Above those that the kernel gives out, and above the first few of an agent
/// with the default ports.
const FIRST_PORT: u16 = 61_400;
/// Mapped ports of one `volvox dev`, shared by its cells: 8 of them end below 65536.
const PORTS: u16 = 512;
/// Containers of a cell.
const CONTAINERS: u32 = 100;

/// What the number of a `volvox dev` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) number: u8,
    pub(super) cells: u8,
    pub(super) base: [u8; 2],
}

impl Layout {
    /// Where the coordinator listens.
    pub(super) const fn coordinator(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.number, 1)
    }

    /// Where a cell listens, and where its containers' ports are. Cells count from 1.
    pub(super) const fn cell(&self, cell: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.number, 10 + cell)
    }

    pub(super) fn bridge(&self, cell: u8) -> String {
        format!("{}{cell}", bridges(self.number))
    }

    fn subnet(&self, cell: u8) -> String {
        let ([a, b], third) = (self.base, self.number * MOST_CELLS + cell - 1);
        format!("{a}.{b}.{third}.0/24")
    }

    fn ports(&self, cell: u8) -> (u16, u16) {
        let each = PORTS / u16::from(self.cells);
        let first = FIRST_PORT + u16::from(self.number) * PORTS + u16::from(cell - 1) * each;
        (first, first + each - 1)
    }
}

/// How the bridges of a number begin.
pub(super) fn bridges(number: u8) -> String {
    format!("volvoxd{number}c")
}

/// Whether a line of /proc/net/route goes where the containers of this number would be.
pub(super) fn is_routed(line: &str, number: u8, base: [u8; 2]) -> bool {
    let mut words = line.split_whitespace();
    let mut hex = |nth| words.nth(nth).and_then(|word| u32::from_str_radix(word, 16).ok());
    let (Some(to), Some(mask)) = (hex(1), hex(5)) else { return false };
    let (to, mask) = (to.swap_bytes(), mask.swap_bytes());
    let [a, b] = base;
    let ours = Ipv4Addr::new(a, b, number * MOST_CELLS, 0).to_bits();
    // Our /21, or theirs, whichever is larger; the default route is everybody's.
    let larger = mask & (u32::MAX << 11);
    mask != 0 && (ours & larger) == (to & larger)
}

/// The room of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellLayout {
    pub(super) memory_mb: u64,
    pub(super) disk_mb: u64,
}

/// The coordinator's configuration.
pub(super) fn coordinator(data: &Path, socket: &Path, api: SocketAddr, mesh: SocketAddr) -> String {
    format!(
        "# Written by `volvox dev` at each start.\n\
         data_dir = {}\nname = \"dev\"\n\
         [api]\nlisten = [\"{api}\"]\nsocket = {}\n\
         [mesh]\nlisten = \"{mesh}\"\n\
         # All cells come and go with the coordinator: nothing is to be waited for.\n\
         [cells]\nsettle_s = 2\nhold_share_percent = 100\n\
         [convergence]\nstale_after_s = 5\n\
         [shutdown]\ngrace_s = 2\n",
        text(data),
        text(socket),
    )
}

/// Where a cell keeps what it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) state: &'a Path,
    pub(super) run: &'a Path,
    pub(super) shim: &'a Path,
}

/// The configuration of a cell's agent.
pub(super) fn agent(
    layout: &Layout,
    cell: u8,
    places: Places<'_>,
    room: CellLayout,
    mesh: SocketAddr,
    coordinator: SocketAddr,
) -> String {
    let (first, last) = layout.ports(cell);
    format!(
        "# Written by `volvox dev` at each start.\n\
         cell_id = \"{}\"\nzone = \"dev\"\nstate_dir = {}\nrun_dir = {}\nshim = {}\n\
         [capacity]\nmemory_mb = {}\ndisk_mb = {}\ncontainers = {CONTAINERS}\n\
         [network]\nbridge = \"{}\"\nsubnet = \"{}\"\nhost_address = \"{}\"\n\
         first_port = {first}\nlast_port = {last}\n\
         [mesh]\nlisten = \"{mesh}\"\nseeds = [\"{coordinator}\"]\n\
         [self_test]\nenabled = false\n\
         [containers]\ngraceful_shutdown_s = 3\n\
         [downloads]\ncache_mb = 1024\n",
        name(cell),
        text(places.state),
        text(places.run),
        text(places.shim),
        room.memory_mb,
        room.disk_mb,
        layout.bridge(cell),
        layout.subnet(cell),
        layout.cell(cell),
    )
}

/// What a cell is called.
pub(super) fn name(cell: u8) -> String {
    format!("cell-{cell}")
}

fn text(path: &Path) -> String {
    toml::Value::String(path.display().to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_cells_share_anything() {
        let mut seen = BTreeSet::new();
        let mut ports = BTreeSet::new();
        for number in 0..NUMBERS {
            // The ports of each are its own, however many cells the others have.
            let cells = if number % 2 == 0 { MOST_CELLS } else { 3 };
            let layout = Layout { number, cells, base: [10, 254] };
            for cell in 1..=cells {
                for it in [layout.bridge(cell), layout.subnet(cell), layout.cell(cell).to_string()]
                {
                    assert!(seen.insert(it.clone()), "{it} twice");
                }
                let (first, last) = layout.ports(cell);
                assert!((first..=last).all(|port| ports.insert(port)), "{first} to {last}");
            }
        }
        assert!(ports.iter().all(|port| *port >= FIRST_PORT));
    }

    #[test]
    fn routes_to_where_containers_would_be_are_seen() {
        let line = |to: &str, mask: &str| format!("eth0\t{to}\t00000000\t0001\t0\t0\t0\t{mask}\t0");
        for (to, mask, expected) in [
            ("00000000", "00000000", false), // the default route
            ("0000FE0A", "00FFFFFF", true),  // 10.254.0.0/24
            ("0007FE0A", "00FFFFFF", true),  // 10.254.7.0/24
            ("0008FE0A", "00FFFFFF", false), // 10.254.8.0/24
            ("0000000A", "000000FF", true),  // 10.0.0.0/8
            ("000200C0", "00FFFFFF", false), // 192.0.2.0/24
        ] {
            assert_eq!(is_routed(&line(to, mask), 0, [10, 254]), expected, "{to}/{mask}");
        }
        assert!(is_routed(&line("0008FE0A", "00FFFFFF"), 1, [10, 254]));
        assert!(!is_routed("Iface\tDestination\tGateway", 0, [10, 254]));
    }

    #[test]
    fn configurations_are_toml_whatever_the_folder_is_called() {
        let layout = Layout { number: 0, cells: 2, base: [10, 254] };
        let odd = Path::new("/tmp/a \"b\"\\c");
        let address: SocketAddr = "127.77.0.1:8889".parse().unwrap();
        let made: toml::Table = coordinator(odd, odd, address, address).parse().unwrap();
        assert_eq!(made["data_dir"].as_str(), odd.to_str());
        let places = Places { state: odd, run: odd, shim: odd };
        let room = CellLayout { memory_mb: 1, disk_mb: 2 };
        let made: toml::Table = agent(&layout, 2, places, room, address, address).parse().unwrap();
        assert_eq!(made["network"]["subnet"].as_str(), Some("10.254.1.0/24"));
        assert_eq!(made["network"]["first_port"].as_integer(), Some(61_656));
    }
}
