//! What holds for every request on the port, whichever surface answers it.
