//! What killed processes leave in `/dev/shm` keeps nobody from starting.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rma_ofi::{Ofi, OfiEndpoint, Options};

#[test]
fn an_endpoint_over_shm_opens_where_a_killed_process_of_that_number_left_its_files() {
    let user = fs::metadata("/proc/self").unwrap().uid();
    // libfabric names them after the process, the user and the place of the endpoint in the process.
    let left: Vec<PathBuf> = (0..2)
        .map(|index| PathBuf::from(format!("/dev/shm/{}:{user}:{index}", std::process::id())))
        .collect();
    for file in &left {
        fs::write(file, [0_u8; 4096]).unwrap();
    }
    let options = Options { provider: Some("shm".to_owned()), single_host: true, ..Options::default() };
    let endpoint = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options);
    for file in &left {
        let length = fs::metadata(file).unwrap().len();
        assert!(length > 4096, "{} is not the endpoint's: {length} bytes", file.display());
    }
    drop(endpoint.unwrap());
    assert!(left.iter().all(|file| !file.exists()), "an endpoint that is closed leaves a file");
}
