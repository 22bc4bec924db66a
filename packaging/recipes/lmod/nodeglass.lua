-- nodeglass, unpacked from its archive into ROOT/nodeglass/VERSION, where ROOT is /opt/apps unless NODEGLASS_ROOT says otherwise.
help([[
Shows every GPU of your SLURM jobs in a browser tab: run `nodeglass` on the login node, and open the link that it prints.
]])
whatis("Name: nodeglass")
whatis("Version: @VERSION@")
whatis("Category: tools")
whatis("Description: Shows every GPU of your SLURM jobs in a browser tab")
whatis("URL: @URL@")

local root = pathJoin(os.getenv("NODEGLASS_ROOT") or "/opt/apps", "nodeglass", "@VERSION@")
if mode() == "load" and not isDir(root) then
    LmodError("there is no folder " .. root .. ": unpack the archive of nodeglass there, or set NODEGLASS_ROOT")
end
prepend_path("PATH", root)
prepend_path("MANPATH", pathJoin(root, "share/man") .. ":")
