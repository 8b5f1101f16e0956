//! Which device, port and address are used.

use core::ffi::{c_int, CStr};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::fs;
use std::sync::Arc;

use rma_core::provider::ProviderError;

use crate::error::call_failed;
use crate::objects::Domain;
use crate::sys::{self, Library};
use crate::Options;

/// An opened device with the port that was chosen.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) domain: Arc<Domain>,
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) gid: sys::Gid,
    service_level: u8,
    traffic_class: u8,
    pub(crate) partition_index: u16,
    pub(crate) port_attributes: sys::ibv_port_attr,
    pub(crate) attributes: sys::ibv_device_attr,
}

/// The list of devices, freed when dropped.
struct List {
    library: &'static Library,
    first: NonNull<*mut sys::ibv_device>,
    len: usize,
}

impl List {
    fn get(library: &'static Library) -> Option<Self> {
        let mut len: c_int = 0;
        // SAFETY: the place of the length is written during the call.
        let first = unsafe { (library.get_device_list)(&mut len) };
        Some(Self { library, first: NonNull::new(first)?, len: len.max(0) as usize })
    }

    fn devices(&self) -> &[*mut sys::ibv_device] {
        // SAFETY: libibverbs gave so many entries, which stay until the list is freed.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    fn name(&self, device: *mut sys::ibv_device) -> String {
        // SAFETY: a device of this list, which is not freed yet.
        let name = unsafe { (self.library.get_device_name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a terminated string that lives as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: came from `get_device_list`, and is freed once.
        unsafe { (self.library.free_device_list)(self.first.as_ptr()) };
    }
}

/// Names of the RDMA devices of this machine; none where libibverbs is not installed.
pub fn device_names() -> Vec<String> {
    let Some(list) = Library::get().ok().and_then(List::get) else { return Vec::new() };
    list.devices().iter().map(|&device| list.name(device)).collect()
}

impl Device {
    /// Opens the device that the options name, or the best with an active port.
    pub(crate) fn choose(options: &Options) -> Result<Self, ProviderError> {
        let library = Library::of(options.device.as_deref())?;
        let list = List::get(library).ok_or_else(none_here)?;
        let mut candidates: Vec<(String, *mut sys::ibv_device)> = list
            .devices()
            .iter()
            .map(|&device| (list.name(device), device))
            .filter(|(name, _)| options.device.as_ref().is_none_or(|wanted| is_called(name, wanted)))
            .collect();
        let near = numa_node_of_this_cpu();
        candidates.sort_by_key(|(name, _)| numa_node_of(name).is_some_and(|node| Some(node) != near));
        let mut reasons = String::new();
        for (name, device) in candidates {
            match Self::open(library, device, &name, options) {
                Ok(device) => return Ok(device),
                Err(error) => reasons += &format!("\n  {name}: {error}"),
            }
        }
        if reasons.is_empty() {
            return Err(options.device.as_ref().map_or_else(none_here, |name| ProviderError {
                message: format!("there is no RDMA device {name} here; `ibv_devices` lists those that are"),
            }));
        }
        Err(ProviderError { message: format!("no RDMA device can be used:{reasons}") })
    }

    fn open(
        library: &'static Library,
        device: *mut sys::ibv_device,
        name: &str,
        options: &Options,
    ) -> Result<Self, ProviderError> {
        // SAFETY: a device of the list, which the caller holds.
        let context = NonNull::new(unsafe { (library.open_device)(device) })
            .ok_or_else(|| call_failed("ibv_open_device", name, crate::error::last_errno()))?;
        let domain = Domain::new(library, context, name)?;
        let mut attributes = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and the structure is that of the symbol's version.
        let result = unsafe { (library.query_device)(domain.context(), attributes.as_mut_ptr()) };
        if result != 0 {
            return Err(call_failed("ibv_query_device", name, result));
        }
        // SAFETY: numbers only, zeroed and then filled.
        let attributes = unsafe { attributes.assume_init() };
        let count = attributes.phys_port_cnt;
        let ports = match options.port {
            Some(port) if !(1..=count).contains(&port) => {
                let message = format!("there is no port {port} (RMA_VERBS_PORT); it has ports 1 to {count}");
                return Err(ProviderError { message });
            }
            Some(port) => port..=port,
            None => 1..=count,
        };
        for port in ports {
            let port_attributes = query_port(&domain, port)
                .map_err(|code| call_failed("ibv_query_port", &format!("port {port} of {name}"), code))?;
            if port_attributes.state != sys::IBV_PORT_ACTIVE {
                continue;
            }
            let (gid_index, gid) = choose_gid(&domain, name, port, &port_attributes, options.gid_index)?;
            check_partition(port, &port_attributes, options.partition_index)?;
            return Ok(Self {
                domain,
                name: name.to_owned(),
                port,
                gid_index,
                gid,
                service_level: options.service_level,
                traffic_class: options.traffic_class,
                partition_index: options.partition_index,
                port_attributes,
                attributes,
            });
        }
        let which = options.port.map_or_else(
            || "no port is active".to_owned(),
            |port| format!("port {port} (RMA_VERBS_PORT) is not active"),
        );
        Err(ProviderError { message: format!("{which}; is its network interface up?") })
    }

    pub(crate) fn is_ethernet(&self) -> bool {
        self.port_attributes.link_layer == sys::IBV_LINK_LAYER_ETHERNET
    }

    /// The way from this port to the port with this address.
    pub(crate) fn way_to(&self, location: &crate::wire::Location) -> sys::ibv_ah_attr {
        sys::ibv_ah_attr {
            dgid: sys::ibv_gid { raw: location.gid },
            flow_label: 0,
            sgid_index: self.gid_index,
            hop_limit: HOPS_MAX,
            traffic_class: self.traffic_class,
            dlid: location.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(self.is_ethernet()),
            port_num: self.port,
        }
    }
}

const HOPS_MAX: u8 = 64;

/// Whether the port's table of partition keys has this entry.
fn check_partition(port: u8, attributes: &sys::ibv_port_attr, index: u16) -> Result<(), ProviderError> {
    let len = attributes.pkey_tbl_len;
    // Software devices may say nothing of their table, whose first entry is always there.
    if index < len.max(1) {
        return Ok(());
    }
    let message = format!(
        "there is no entry {index} (RMA_VERBS_PKEY_INDEX) in port {port}'s table of partition keys, which has {len}; \
         `ibv_devinfo -v` lists them"
    );
    Err(ProviderError { message })
}

fn none_here() -> ProviderError {
    ProviderError {
        message:
            "there is no RDMA device here (`ibv_devices` lists none); use a libfabric provider, or make a \
                  device in software: rdma link add rxe0 type rxe netdev INTERFACE"
                .to_owned(),
    }
}

fn query_port(domain: &Domain, port: u8) -> Result<sys::ibv_port_attr, c_int> {
    let mut attributes = MaybeUninit::<sys::ibv_port_attr>::zeroed();
    // SAFETY: the context is open; the symbol fills a structure that is not longer than this one.
    let result = unsafe { (domain.library.query_port)(domain.context(), port, attributes.as_mut_ptr()) };
    if result != 0 {
        return Err(result);
    }
    // SAFETY: numbers only, zeroed and then filled.
    Ok(unsafe { attributes.assume_init() })
}

/// The entry of the table of addresses that peers are told.
fn choose_gid(
    domain: &Domain,
    name: &str,
    port: u8,
    attributes: &sys::ibv_port_attr,
    wanted: Option<u8>,
) -> Result<(u8, sys::Gid), ProviderError> {
    let len = attributes.gid_tbl_len.clamp(0, 256) as usize;
    let indices = match wanted {
        Some(index) => usize::from(index)..usize::from(index) + 1,
        None => 0..len,
    };
    let entries = indices.filter_map(|index| {
        // Most entries of a long table are empty, and reading a file of each would be most of what opening takes.
        let gid = query_gid(domain, port, index).filter(|gid| !is_empty(gid))?;
        let directory = format!("/sys/class/infiniband/{name}/ports/{port}");
        let kind = fs::read_to_string(format!("{directory}/gid_attrs/types/{index}")).unwrap_or_default();
        Some((rank_of(&gid, kind.trim())?, index as u8, gid))
    });
    entries.max_by_key(|&(rank, index, _)| (rank, core::cmp::Reverse(index))).map_or_else(
        || {
            let message = match wanted {
                Some(index) => format!(
                    "entry {index} (RMA_VERBS_GID_INDEX) of port {port}'s table of global identifiers, which has {len}, \
                     is empty or not there; `ibv_devinfo -v` lists them"
                ),
                None => format!("port {port} has no usable entry in its table of global identifiers"),
            };
            Err(ProviderError { message })
        },
        |(_, index, gid)| Ok((index, gid)),
    )
}

fn is_empty(gid: &sys::Gid) -> bool {
    gid.iter().all(|&byte| byte == 0)
}

/// How well an address serves; `None` when it does not.
fn rank_of(gid: &sys::Gid, kind: &str) -> Option<u8> {
    if is_empty(gid) {
        return None;
    }
    let is_ipv4 = gid[..10].iter().all(|&byte| byte == 0) && gid[10..12] == [0xff, 0xff];
    Some(2 * u8::from(kind == "RoCE v2") + u8::from(is_ipv4))
}

fn query_gid(domain: &Domain, port: u8, index: usize) -> Option<sys::Gid> {
    let mut gid = sys::ibv_gid { raw: [0; 16] };
    // SAFETY: the context is open; the identifier is written during the call.
    let result = unsafe { (domain.library.query_gid)(domain.context(), port, index as c_int, &mut gid) };
    (result == 0).then_some(gid.raw)
}

/// Whether this is the device's name or its PCI address, be it without the domain.
fn is_called(device: &str, wanted: &str) -> bool {
    let link = || fs::read_link(format!("/sys/class/infiniband/{device}/device")).ok();
    let is_at = |pci: &str| pci == wanted || pci.split_once(':').is_some_and(|(_, rest)| rest == wanted);
    device == wanted
        || link().is_some_and(|path| path.file_name().and_then(|pci| pci.to_str()).is_some_and(is_at))
}

/// The NUMA node that the device is attached to, where the machine has several.
fn numa_node_of(device: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/infiniband/{device}/device/numa_node")).ok()?.trim().parse().ok()
}

fn numa_node_of_this_cpu() -> Option<u32> {
    let (mut cpu, mut node): (libc::c_uint, libc::c_uint) = (0, 0);
    // SAFETY: both places are written during the call; the third argument is not used any more.
    let result = unsafe {
        libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, core::ptr::null_mut::<libc::c_void>())
    };
    (result == 0).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routable_addresses_are_preferred_and_empty_entries_are_none() {
        let mut ipv4 = [0; 16];
        ipv4[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        let local = [0xfe; 16];
        assert_eq!(rank_of(&[0; 16], "RoCE v2"), None);
        assert!(rank_of(&ipv4, "RoCE v2") > rank_of(&local, "RoCE v2"));
        assert!(rank_of(&local, "RoCE v2") > rank_of(&ipv4, "IB/RoCE v1"));
        assert!(rank_of(&local, "").is_some());
    }

    fn chosen(change: fn(&mut Options)) -> Result<Device, String> {
        let device = Some(sys::emulated::NAME.to_str().unwrap().to_owned());
        let mut options = Options { device, ..Options::default() };
        change(&mut options);
        Device::choose(&options).map_err(|error| error.message)
    }

    #[test]
    fn what_the_device_has_not_is_an_error_that_names_the_setting() {
        for (change, words) in [
            (
                (|options| options.port = Some(7)) as fn(&mut Options),
                "port 7 (RMA_VERBS_PORT); it has ports 1 to 1",
            ),
            (|options| options.port = Some(0), "port 0 (RMA_VERBS_PORT)"),
            (|options| options.gid_index = Some(9), "entry 9 (RMA_VERBS_GID_INDEX)"),
            (|options| options.partition_index = 3, "entry 3 (RMA_VERBS_PKEY_INDEX)"),
        ] {
            let error = chosen(change).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn service_level_and_traffic_class_are_those_of_the_way() {
        let device = chosen(|options| {
            (options.port, options.gid_index) = (Some(1), Some(0));
            (options.service_level, options.traffic_class, options.partition_index) = (3, 104, 1);
        })
        .unwrap();
        let location = crate::wire::Location {
            nonce: 1,
            gid: [1; 16],
            lid: 2,
            mtu: 3,
            is_ethernet: true,
            queue: 4,
            queue_key: 5,
            reads: 6,
        };
        let way = device.way_to(&location);
        assert_eq!((way.sl, way.traffic_class, way.sgid_index, way.port_num), (3, 104, 0, 1));
        assert_eq!(device.partition_index, 1);
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error_with_a_remedy() {
        let options = Options { device: Some("no_such_device".to_owned()), ..Options::default() };
        let error = Device::choose(&options).unwrap_err();
        let remedies = ["ibv_devices", "apt install", "libfabric"];
        assert!(remedies.iter().any(|remedy| error.message.contains(remedy)), "{error}");
    }
}
