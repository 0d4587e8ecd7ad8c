-- What a pre-function of Kong is given, as far as deploy/kong/kong.yaml uses it, for nginx with the Lua module: `kong` by
-- Kong's reference of its PDK, and the module resty.http by its README.
kong = {
  request = {
    get_headers = function(most) return ngx.req.get_headers(most) end,
    get_method = function() return ngx.req.get_method() end,
    get_path_with_query = function() return ngx.var.request_uri end,
  },
  client = { get_forwarded_ip = function() return ngx.var.remote_addr end },
  log = { err = function(...) ngx.log(ngx.ERR, ...) end },
  response = {
    set_headers = function(headers)
      for name, value in pairs(headers) do ngx.header[name] = value end
    end,
    exit = function(status, body, headers)
      ngx.status = status
      for name, value in pairs(headers or {}) do ngx.header[name] = value end
      ngx.print(body)
      return ngx.exit(status)
    end,
  },
}

local Client = {}
Client.__index = Client

function Client:set_timeouts(connect, send, read) self.socket:settimeouts(connect, send, read) end

function Client:request_uri(uri, options)
  local host, port, path = uri:match("^http://([^:/]+):(%d+)(.*)$")
  local connected, problem = self.socket:connect(host, tonumber(port))
  if not connected then return nil, problem end
  local lines = { options.method .. " " .. path .. " HTTP/1.1", "Host: " .. host .. ":" .. port }
  for name, values in pairs(options.headers) do
    for _, value in ipairs(type(values) == "table" and values or { values }) do
      lines[#lines + 1] = name .. ": " .. value
    end
  end
  self.socket:send(table.concat(lines, "\r\n") .. "\r\n\r\n")
  local status
  status, problem = self.socket:receive("*l")
  if not status then return nil, problem end
  local headers = setmetatable({}, { __index = function(self, name) return rawget(self, name:lower()) end })
  for line in function() return self.socket:receive("*l") end do
    if line == "" then break end
    local name, value = line:match("^([^:]+):%s*(.-)%s*$")
    rawset(headers, name:lower(), value)
  end
  local length = tonumber(headers["Content-Length"] or 0)
  local body = length > 0 and self.socket:receive(length) or ""
  self.socket:setkeepalive(options.keepalive_timeout, options.keepalive_pool)
  return { status = tonumber(status:sub(10, 12)), headers = headers, body = body }
end

package.loaded["resty.http"] = {
  new = function() return setmetatable({ socket = ngx.socket.tcp() }, Client) end,
}
