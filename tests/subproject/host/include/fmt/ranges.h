#error "the fmt of the host"
